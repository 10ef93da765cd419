"""Nemotron-Labs linear speculation: the target with an adapter fills a block of masks in one pass.

The last token and masks see each other and the sequence's keys and values, and all of them take the adapter. A row
predicts the token of its own position, so the first row is not used::

    spec generate -m TARGET --method nemotron-labs=linear_spec_lora -p "def add(a, b):"
"""

from __future__ import annotations

import attrs
from attrs.validators import ge

from spec_core import Compat, DraftStep, Needs, Refusal, Sequence, Target, hookimpl
from spec_core.toolkit import (
    BlockOfTarget,
    Overlay,
    TokenDrafter,
    overlay_problem,
    p_min_field,
    partial_forward,
    partial_problem,
    read_adapter,
)


@attrs.define(eq=False)
class NemotronLabs:
    """Draft a block of masks with the target's layers and an adapter."""

    folder: str = attrs.field(default="", metadata={"help": "the folder of the adapter"})
    block: int = attrs.field(default=32, validator=ge(2), metadata={"help": "rows of a block"})
    mask: int = attrs.field(default=100, validator=ge(0), metadata={"help": "id of the mask token"})
    draft_max: int = attrs.field(default=256, validator=ge(1), metadata={"help": "longest draft"})
    p_min: float | None = p_min_field("end a draft that is less likely to be accepted; 0.3")
    rows: BlockOfTarget = attrs.field(default=None, init=False)
    drafter: TokenDrafter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.drafter = TokenDrafter(self.p_min)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        reason, hint = self.misfit(target), "write --method nemotron-labs=FOLDER, of an adapter for this target"
        return Compat(
            needs=Needs(partial=True),
            drafts=self.drafter.proposals,
            forwards=lambda drafted: 1,
            refusals=[Refusal(reason, hint)] if reason else [],
            load=self.load,
            catches_up=True,
        )

    def misfit(self, target: Target) -> str | None:
        """Why the adapter cannot draft for a target, from shapes alone."""
        if not self.folder:
            return "no folder is named"
        if self.mask >= target.info.vocab:
            return f"the mask token is {self.mask}, {target.info.name} has {target.info.vocab}"
        if partial_problem(target) is not None:
            return None  # the run says it
        return overlay_problem(target, self.overlay(values=False))

    def overlay(self, values: bool = True) -> Overlay:
        return Overlay(read_adapter(self.folder, values), both_ways=True)

    def load(self, target: Target) -> None:
        blocks = range(target.info.layers)
        rows, plain = partial_forward(target, blocks, overlay=self.overlay()), partial_forward(target, blocks)
        self.rows = BlockOfTarget(rows, plain, self.block, first=1)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        self.rows.draft(step, self.drafter, self.draft_max, self.block_tokens)

    def block_tokens(self, seq: Sequence) -> list[int]:
        return [seq.tokens[-1], *[self.mask] * (self.block - 1)]
