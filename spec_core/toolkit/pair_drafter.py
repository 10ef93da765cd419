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
from spec_core.contract.sequence import Sequence, StashKey
from spec_core.contract.step import Step
from spec_core.contract.values import Draft, Proposal
from spec_core.hookspecs import hookimpl
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.pair_tree import PairTree, learn
from spec_core.toolkit.token_drafter import PartialDraft, SampleMode, TokenDrafter
from spec_core.toolkit.tree import TreeLimits

BACKLOG = 256
"""Pairs that wait for the next draft at most; more are evaluated at once."""


@attrs.define(eq=False)
class PairState:
    """Of one sequence. pairs: what the layer holds, with the methods of ``spec_kernels.model.pairs.PairMemory``."""

    pairs: Any
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)


@attrs.define(eq=False)
class PairDraft(PartialDraft):
    """One sequence while a chain is drafted; hidden: the layer's own [1, D] after its last token."""

    memory: Any = attrs.field(kw_only=True)
    chooser: TokenDrafter = attrs.field(kw_only=True)
    watch: Any = attrs.field(kw_only=True)
    hidden: Tensor | None = None

    def pairs(self) -> Any:
        """What is missing of the committed text, then one pair after the other of the layer's own."""
        if not self.ids:
            return self.memory.pairs()
        return self.memory.own(len(self.ids), self.ids[-1], self.hidden)

    def take(self, step: Step, hidden: Tensor, rows: Tensor) -> None:
        """One more token; hidden [1, D], rows [1, V] of the target's tokens."""
        token = self.chooser.extend(step, self, rows[0])
        self.hidden = hidden
        if self.watch is not None:
            self.watch(token, rows[0])

    def made(self) -> Draft:
        return self.chooser.made(self)


class PairDrafter:
    """The hooks of such a method. It declares the settings ``p_min`` and ``sample``, and

    longest: path of a draft. width: most tokens after one, 1 drafts chains. nodes_max: most tokens of a tree.
    layer: memory(), forward(parts) and draft(...) as ``spec_kernels.model.pairs.PairLayer`` has them.
    state: what is kept of a sequence. watch: called with every token of a chain and its row, if it is not None.
    """

    p_min: float | None
    sample: SampleMode
    width: int = 1
    nodes_max: int = 1
    layer: Any
    watch: Any
    state: StashKey[PairState]

    def hidden(self, spans: Rowing[Span]) -> list[Tensor]:
        """[n, D] for each span, of its own memory: what its pairs are made of."""
        raise NotImplementedError

    def logits(self, rows: Tensor) -> Tensor:
        """Rows of the layer as logits [n, V] of the target's tokens."""
        return rows

    @property
    def longest(self) -> int:
        raise NotImplementedError

    @property
    def drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    # hooks

    @hookimpl
    def draft(self, step: Step) -> None:
        drafts = [d for seq, budget in step.undrafted if (d := self._begin(step, seq, budget))]
        if len(drafts) == 1 and isinstance(drafts[0], PairDraft):
            self._all_at_once(step, drafts[0])
        while growing := [d for d in drafts if d.open]:
            self._one_more(step, growing)
        for d in drafts:
            if (made := d.made()) is not None:
                step.propose(d.seq, made)

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.judged:
            learn(seq.stash[self.state].estimate, part.draft, part.uncut.path)

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

    def _begin(self, step: Step, seq: Sequence, budget: int) -> PairDraft | PairTree | None:
        state = seq.stash.get(self.state)
        if state is None or not state.pairs.tokens:
            return None
        state.estimate.fade()
        p_min = self.drafter.price(step, seq)
        if state.estimate.value < p_min:
            return None
        longest = min(budget, self.longest)
        if self._branches(step, seq):
            most = min(step.nodes(seq), self.nodes_max)
            limits = TreeLimits(longest, most, self.width, p_min, seq.stop.tokens)
            proposal: Proposal = "unknown" if self.drafter.follows(step, seq) else "deterministic"
            return PairTree(seq, state.pairs, self.drafter, limits, proposal, state.estimate.value)
        return PairDraft(seq, longest, state.estimate, memory=state.pairs, chooser=self.drafter, watch=self.watch)

    def _branches(self, step: Step, seq: Sequence) -> bool:
        """Drawn tokens that a rule weighs form a chain: one left out for its chance would change their distribution."""
        return self.width > 1 and step.trees and not (step.wants_probs and self.drafter.samples(seq))

    def _all_at_once(self, step: Step, draft: PairDraft) -> None:
        """A chain of one sequence is one call, however long it gets, where the layer can choose its tokens itself."""
        sampled = self.drafter.samples(draft.seq)
        chooser = self.drafter.chooser(step, draft) if sampled and self.layer.draws else None
        if self.watch is not None or (sampled and chooser is None):
            return
        pairs, rows = draft.pairs(), None
        draft.memory.room(draft.memory.done + draft.budget)
        limits = draft.budget, self.drafter.price(step, draft.seq), draft.estimate.value, sorted(draft.seq.stop.tokens)
        if chooser is None:
            ids, chances = self.layer.draft(pairs, *limits)
        else:
            ids, chances, rows = self.layer.draw(pairs, *limits, chooser, step.wants_probs)
        step.report_cost(forwards=len(ids), rows=len(pairs.tokens) + len(ids) - 1)
        self.drafter.take(draft, ids, chances, None if rows is None else self.logits(rows))

    def _one_more(self, step: Step, drafts: Rowing[PairDraft | PairTree]) -> None:
        """One forward, one more depth for each."""
        parts = [d.pairs() for d in drafts]
        hidden, logits = self.layer.forward(parts)
        step.report_cost(forwards=1, rows=sum(len(p.tokens) for p in parts))
        wanted = [p.wanted for p in parts]
        for d, states, rows in zip(drafts, hidden.split(wanted), logits.split(wanted), strict=True):
            d.take(step, states, self.logits(rows))
