"""Drafts the tokens that a request's constraint leaves no choice about; needs no model.

The names of required keys, quotes and brackets of a JSON schema, the rest of an enumerated value. The bytes are
certain, how the model splits them into tokens is not: the target verifies these tokens like any others.
"""

from __future__ import annotations

import attrs
from attrs.validators import and_, ge, le

from spec_core import Compat, Draft, DraftStep, Needs, hookimpl
from spec_core.toolkit import forced_tokens


@attrs.define(eq=False)
class Forced:
    """Drafts tokens that a JSON schema or grammar forces; nothing without one."""

    draft_max: int = attrs.field(
        default=32, validator=and_(ge(1), le(256)), metadata={"help": "max draft length", "off": 256}
    )
    extend: bool = attrs.field(default=False, metadata={"help": "extend the drafts of methods named before it"})

    @hookimpl
    def compat(self) -> Compat:
        return Compat(
            needs=Needs(constraints=True), drafts={"deterministic"}, extends=self.extend, forwards=lambda k: 0
        )

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, draft, leaf, budget in step.leaves:
            before = [draft.ids[i] for i in draft.ancestry(leaf)]
            if ids := forced_tokens(seq, before, min(budget, self.draft_max)):
                step.extend(seq, Draft(ids), leaf)
        for seq, budget in step.undrafted:
            if ids := forced_tokens(seq, (), min(budget, self.draft_max)):
                step.propose(seq, Draft(ids))
