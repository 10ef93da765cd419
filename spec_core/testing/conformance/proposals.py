"""A method's proposals, recorded before the core checks them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft
from spec_core.testing.conformance.probes import SUBJECT


@attrs.frozen(eq=False)
class Offer:
    """One proposal. budget, nodes: its limits. free: whether the sequence was offered and had no draft yet."""

    seq: Sequence
    committed: int
    draft: Draft
    budget: int
    nodes: int
    free: bool
    wants_probs: bool

    def __str__(self) -> str:
        tree = "" if self.draft.parents is None else f", parents {list(self.draft.parents)}"
        prompt = self.seq.tokens[: self.seq.prompt_len]
        where = f"after {self.committed} tokens of request {self.seq.name!r}, prompt={prompt}"
        return f"the draft {list(self.draft.ids)}{tree} {where}, budget {self.budget}"


@contextmanager
def proposals(plugin: str = SUBJECT) -> Iterator[list[Offer]]:
    """A list that collects every proposal of the plugin, valid or not, while the context is open."""
    offers: list[Offer] = []
    propose = DraftStep.propose

    def look(step: DraftStep, seq: Sequence, draft: Draft) -> None:
        if step.plugin == plugin and isinstance(draft, Draft):
            offers.append(_offer(step, seq, draft))
        propose(step, seq, draft)

    DraftStep.propose = look  # type: ignore[assignment,method-assign]
    try:
        yield offers
    finally:
        DraftStep.propose = propose  # type: ignore[method-assign]


def _offer(step: DraftStep, seq: Sequence, draft: Draft) -> Offer:
    part = step.part(seq)
    free = part.draft is None and part.budget > 0 and seq.wants(step.plugin)
    budget = part.length_max(step.plugin)
    nodes = part.nodes_max(step.plugin) if step.trees else budget
    return Offer(seq, len(seq.tokens), draft, budget, nodes, free, step.wants_probs)
