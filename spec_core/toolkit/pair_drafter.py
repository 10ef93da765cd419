"""What drafters share whose layer reads pairs: a hidden state of the target, and the token after it.

What the layer lacks of the committed pairs is evaluated together with the first drafted token, so k drafts cost k
forwards of it.
"""

from __future__ import annotations

from collections.abc import Sequence as Rowing
from typing import Any

import attrs
from torch import Tensor

from spec_core.contract.rows import Rows, Span
from spec_core.contract.sequence import Sequence
from spec_core.contract.stash import StashKey
from spec_core.contract.step import Step
from spec_core.hookspecs import hookimpl
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.token_drafter import PartialDraft, SampleMode, TokenDrafter

BACKLOG = 256
"""Pairs that wait for the next draft at most; more are evaluated at once."""


@attrs.define(eq=False)
class PairState:
    """Of one sequence. pairs: what the layer holds, with the methods of ``spec_kernels.model.pairs.PairMemory``."""

    pairs: Any
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)


@attrs.define(eq=False)
class PairDraft(PartialDraft):
    """One sequence while it is drafted; hidden: the layer's own [1, D] after its last token."""

    memory: Any = attrs.field(kw_only=True)
    hidden: Tensor | None = None

    def pairs(self) -> Any:
        """What is missing of the committed text, then one pair after the other of the layer's own."""
        if not self.ids:
            return self.memory.pairs()
        return self.memory.own(len(self.ids), self.ids[-1], self.hidden)


class PairDrafter:
    """The hooks of such a method. It declares the settings ``draft_max``, ``p_min`` and ``sample``, and

    layer: memory(), forward(parts) and draft(...) as ``spec_kernels.model.pairs.PairLayer`` has them.
    state: what is kept of a sequence. watch: called with every drafted token and its row, if it is not None.
    """

    draft_max: int
    p_min: float
    sample: SampleMode
    layer: Any
    watch: Any
    state: StashKey[PairState]

    def hidden(self, spans: Rowing[Span]) -> list[Tensor]:
        """[n, D] for each span, of its own memory: what its pairs are made of."""
        raise NotImplementedError

    def logits(self, row: Tensor) -> Tensor:
        """A row of the layer as logits [V] of the target's tokens."""
        return row

    @property
    def whole_drafts(self) -> bool:
        """Whether the layer can choose all tokens of a greedy draft itself: its rows are the target's tokens."""
        return True

    @property
    def drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    # hooks

    @hookimpl
    def draft(self, step: Step) -> None:
        drafts = [d for seq, budget in step.undrafted if (d := self._begin(seq, budget))]
        if len(drafts) == 1 and self._alone(drafts[0]):
            self._all_at_once(step, drafts[0])
        while growing := [d for d in drafts if d.open]:
            self._one_more(step, growing)
        for d in drafts:
            step.propose(d.seq, self.drafter.made(d))

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.judged:
            seq.stash[self.state].estimate.learn(part.drafted, len(part.uncut.path))

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Keep the new pairs; evaluate them only where they are many."""
        both = list(rows.by_sequence())
        if not both:
            return
        for (seq, span), hidden in zip(both, self.hidden([span for _, span in both]), strict=True):
            state = seq.stash.get(self.state)
            if state is None:
                state = seq.stash[self.state] = PairState(self.layer.memory())
            state.pairs.take(span.start, span.next, hidden, span.next_embeds)
            while len(state.pairs.tokens) > BACKLOG:
                self.layer.forward([state.pairs.pairs(BACKLOG)], last=False)
                rows.step.report_cost(forwards=1, rows=BACKLOG)

    # one draft

    def _begin(self, seq: Sequence, budget: int) -> PairDraft | None:
        state = seq.stash.get(self.state)
        if state is None or not state.pairs.tokens:
            return None
        state.estimate.fade()
        if state.estimate.value < self.p_min:
            return None
        return PairDraft(seq, min(budget, self.draft_max), state.estimate, memory=state.pairs)

    def _alone(self, draft: PairDraft) -> bool:
        return self.whole_drafts and self.watch is None and not self.drafter.samples(draft.seq)

    def _all_at_once(self, step: Step, draft: PairDraft) -> None:
        """A greedy draft of one sequence is one call, however long it gets."""
        pairs = draft.pairs()
        draft.memory.room(draft.memory.done + draft.budget)
        stops = sorted(draft.seq.stop.tokens)
        ids, chances = self.layer.draft(pairs, draft.budget, self.p_min, draft.estimate.value, stops)
        step.report_cost(forwards=len(ids), rows=len(pairs.tokens) + len(ids) - 1)
        draft.ids, draft.confidence, draft.open = ids, chances, False

    def _one_more(self, step: Step, drafts: list[PairDraft]) -> None:
        """One forward, one more token for each."""
        parts = [d.pairs() for d in drafts]
        hidden, logits = self.layer.forward(parts)
        step.report_cost(forwards=1, rows=sum(len(p.tokens) for p in parts))
        for i, d in enumerate(drafts):
            row = self.logits(logits[i])
            token = self.drafter.extend(step, d, row)
            d.hidden = hidden[i : i + 1]
            if self.watch is not None:
                self.watch(token, row)
