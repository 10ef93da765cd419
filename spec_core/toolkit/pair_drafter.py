"""Hooks for drafters whose layer reads pairs: a hidden state of the target, and the token after it.

Missing pairs of committed text are evaluated together with the first drafted token, so k drafts cost k
forwards of the layer.

A method that extends goes on where another's draft ends: the layer reads that draft's tokens one after the other, each
after its own state, as it reads tokens of its own. So j tokens of others and k of its own cost j + k forwards.
"""

from __future__ import annotations

from collections.abc import Sequence as Rowing
from typing import Any

import attrs
from torch import Tensor

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.hook_step import HookStep
from spec_core.contract.kinds import Proposal
from spec_core.contract.rows import Rows, Span
from spec_core.contract.sequence import Sequence, StashKey
from spec_core.contract.values import Draft
from spec_core.contract.verified_step import RollbackStep
from spec_core.hookspecs import hookimpl
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.pair_tree import PairTree, learn_draft
from spec_core.toolkit.place import COMMITTED, BranchPoint, branch_points, extension_estimate, tested_extensions
from spec_core.toolkit.token_drafter import PartialDraft, SampleMode, TokenDrafter
from spec_core.toolkit.tree import DraftLimits, TreeLimits

BACKLOG = 256
"""Max pairs that wait for the next draft; more are evaluated at once."""
FEW = 16
"""Max rows of a step whose states may be read later."""
LATER = 32
"""Steps after which states are read in any case."""


@attrs.define(eq=False)
class PairState:
    """State of one sequence. pairs: the layer's memory, with the methods of ``spec_kernels.model.pairs.PairMemory``.

    reached: share of the drafts it extended that were accepted to their end. unread: committed rows after the rows of
    ``pairs`` whose states are read before the next draft. drafted: its draft was judged in this step.
    """

    pairs: Any
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)
    reached: AcceptanceEstimate = attrs.field(factory=extension_estimate)
    unread: list[Span] = attrs.field(factory=list)
    drafted: bool = False

    def fade(self) -> None:
        self.estimate.fade()
        self.reached.fade()

    def chance(self, point: BranchPoint) -> float:
        """Probability that all tokens drafted before ``point`` are accepted."""
        return self.reached.value if point.chance is None else point.chance

    def fork(self) -> PairState:
        """Copy for another sequence with the same rows; its acceptance rate is its own."""
        return PairState(self.pairs.fork(), unread=[*self.unread])


@attrs.define(eq=False)
class PairDraft(PartialDraft):
    """A chain of one sequence while it is drafted; hidden: the layer's own [1, D] after the last pair it read.

    read: how many drafted tokens it read, other methods' first.
    """

    memory: Any = attrs.field(kw_only=True)
    chooser: TokenDrafter = attrs.field(kw_only=True)
    watch: Any = attrs.field(kw_only=True)
    hidden: Tensor | None = None
    read: int = 0

    @property
    def behind(self) -> bool:
        """Whether the layer still has to read tokens of another method before it can draft its own."""
        return self.read < len(self.place.path) - (self.hidden is not None)

    def pairs(self) -> Any:
        """First the missing pairs of committed text, then one at a time the pairs of drafted tokens and own states."""
        if self.hidden is None:
            return self.memory.pairs()
        self.read += 1
        return self.memory.own(self.read, self.path[self.read - 1], self.hidden)

    def whole(self, step: DraftStep, chooses: Any) -> DraftLimits | None:
        """Limits of the chain made in one call; None where its tokens have to be chosen here."""
        return None if self.watch is not None else self.chooser.limits(step, self, chooses)

    def take_finished(self, chain: Any, rows: Tensor | None) -> None:
        """A chain that was made in one call. rows: what its tokens were drawn from, where a rule reads them."""
        self.chooser.add_tokens(self, chain.tokens, chain.chances, rows)

    def take(self, step: DraftStep, hidden: Tensor, rows: Tensor) -> None:
        """Add a token; hidden [1, D], rows [1, V] over the target's tokens."""
        token = self.chooser.extend(step, self, rows[0])
        self.hidden = hidden
        if self.watch is not None:
            self.watch(token, rows[0])

    def finish(self) -> Draft:
        return self.chooser.finish(self)


class PairDrafter:
    """The hooks of such a method. It declares the settings ``p_min`` and ``sample``, and

    extend: whether it extends the drafts of others, with chains. longest: max path of a draft. width: max children of a
    token, 1 drafts chains. nodes_max: max tokens of a tree.
    layer: memory(), forward(parts), states(parts), draft(...), catch_up(...) and chooses(...) as in
    ``spec_kernels.model.pairs.PairLayer``.
    state: key of the sequence's state. watch: if set, called with every token of a chain and its row.
    """

    p_min: float | None
    sample: SampleMode
    extend: bool = False
    width: int = 1
    nodes_max: int = 1
    layer: Any
    watch: Any
    state: StashKey[PairState]

    def hidden_states(self, spans: Rowing[Span]) -> list[Tensor]:
        """[n, D] for each span, in new memory: the hidden states of its pairs."""
        raise NotImplementedError

    def later(self, span: Span) -> Span | None:
        """A copy of a span, if reading its states takes less time together with the spans of later steps."""
        return None

    def logits(self, rows: Tensor) -> Tensor:
        """Rows of the layer as logits [n, V] over the target's tokens."""
        return rows

    @property
    def longest(self) -> int:
        raise NotImplementedError

    @property
    def drafter(self) -> TokenDrafter:
        return TokenDrafter(self.p_min, self.sample)

    # hooks

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        behind = [c for seq, place, budget in branch_points(step) if (c := self._chain(step, seq, budget, place))]
        drafts = [*behind, *(d for seq, budget in step.undrafted if (d := self._begin(step, seq, budget)))]
        states = [d.seq.stash[self.state] for d in drafts]
        self._read(step, [(state, state.unread) for state in states if state.unread])
        self._read_others(step, behind)
        self._all_at_once(step, drafts)
        while growing := [d for d in drafts if d.open]:
            self._extend_drafts(step, growing)
        for d in drafts:
            if (draft := d.finish()) is not None:
                d.place.add(step, d.seq, draft)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, part in step.draft_results:
            state = seq.stash[self.state]
            state.drafted = True
            learn_draft(state.estimate, part.draft, part.full_verdict.path)
        for seq, tested in tested_extensions(step):
            seq.stash[self.state].reached.add(tested, 1)

    @hookimpl
    def process(self, rows: Rows) -> None:
        """Keep the new pairs; evaluate them only if there are many.

        A method that has just drafted will soon need them. Otherwise their states may be read later, many at once.
        """
        now = []
        for seq, span in rows.by_sequence():
            state = seq.stash.get(self.state)
            if state is None:
                state = seq.stash[self.state] = PairState(self.layer.memory())
            waits = not state.drafted and len(span.tokens) <= FEW and len(state.unread) < LATER
            state.drafted = False
            if waits and (kept := self.later(span)) is not None:
                state.unread.append(kept)
            else:
                now.append((state, [*state.unread, span]))
        self._read(rows.step, now)

    def _read(self, step: HookStep, waiting: Rowing[tuple[PairState, list[Span]]]) -> None:
        """Make pairs of spans, of several sequences at once."""
        spans = [span for _, each in waiting for span in each]
        hidden = iter(self.hidden_states(spans) if spans else ())
        for state, each in waiting:
            state.unread = []
            for span in each:
                state.pairs.take(span.start, span.next, next(hidden), span.next_embeds)
            while state.pairs.waiting > BACKLOG:
                forwards, rows = self.layer.catch_up(state.pairs, BACKLOG)
                step.report_cost(forwards=forwards, rows=rows)

    # one draft

    def _begin(self, step: DraftStep, seq: Sequence, budget: int) -> PairDraft | PairTree | None:
        return self._tree(step, seq, budget) if self._branches(step, seq) else self._chain(step, seq, budget)

    def _ready(self, step: DraftStep, seq: Sequence, point: BranchPoint = COMMITTED) -> PairState | None:
        """The sequence's state, if a draft that begins there is likely enough to be accepted."""
        state = seq.stash.get(self.state)
        if state is None or not (state.pairs.tokens or state.unread):
            return None
        state.fade()
        return state if state.chance(point) * state.estimate.value >= self.drafter.price(step, seq) else None

    def _chain(self, step: DraftStep, seq: Sequence, budget: int, point: BranchPoint = COMMITTED) -> PairDraft | None:
        state, longest = self._ready(step, seq, point), min(budget, self.longest)
        if state is None:
            return None
        rest = {"memory": state.pairs, "chooser": self.drafter, "watch": self.watch}
        return PairDraft(seq, longest, state.estimate, survival=state.chance(point), place=point, **rest)

    def _tree(self, step: DraftStep, seq: Sequence, budget: int) -> PairTree | None:
        state = self._ready(step, seq)
        if state is None:
            return None
        nodes, p_min = min(step.nodes(seq), self.nodes_max), self.drafter.price(step, seq)
        limits = TreeLimits(min(budget, self.longest), nodes, self.width, p_min, seq.stop.tokens)
        proposal: Proposal = "unknown" if self.drafter.uses_target_noise(step, seq) else "deterministic"
        return PairTree(seq, state.pairs, self.drafter, limits, proposal, state.estimate.value)

    def _branches(self, step: DraftStep, seq: Sequence) -> bool:
        """Whether a tree is drafted. Drawn tokens need a chain: leaving out an unlikely one would change q."""
        return self.width > 1 and step.trees and not (step.wants_probs and self.drafter.samples(seq))

    def _read_others(self, step: DraftStep, drafts: Rowing[PairDraft]) -> None:
        """Read what other methods drafted, up to the last token before each chain: that gives the chain's first."""
        while behind := [d for d in drafts if d.behind]:
            parts = [d.pairs() for d in behind]
            states = self.layer.states(parts)
            step.report_cost(forwards=1, rows=sum(len(p.tokens) for p in parts))
            for d, state in zip(behind, states.split(1), strict=True):
                d.hidden = state

    def _all_at_once(self, step: DraftStep, drafts: Rowing[PairDraft | PairTree]) -> None:
        """Draft in one call, whatever the lengths, all sequences whose tokens need not be chosen here.

        A call keeps the rows of all its drafts or of none: drafts whose rows a rule reads have a call of their own.
        """
        whole = [(d, limits) for d in drafts if (limits := d.whole(step, self.layer.chooses)) is not None]
        for keep in (True, False):
            if some := [(d, limits) for d, limits in whole if self._keeps(step, d) == keep]:
                self._in_one_call(step, some, keep)

    def _keeps(self, step: DraftStep, draft: PairDraft | PairTree) -> bool:
        return isinstance(draft, PairDraft) and self.drafter.keeps_probs(step, draft.seq)

    def _in_one_call(
        self, step: DraftStep, drafts: Rowing[tuple[PairDraft | PairTree, DraftLimits]], keep: bool
    ) -> None:
        parts = [d.pairs() for d, _ in drafts]
        for d, limits in drafts:  # the last depth needs no places: nothing follows it
            d.memory.room(d.memory.done + len(d.place.path) + limits.width * (limits.depth - 1))
        result = self.layer.draft(parts, [limits for _, limits in drafts], keep)
        step.report_cost(forwards=result.forwards, rows=result.rows)
        for (d, _), chain in zip(drafts, result.found, strict=True):
            d.take_finished(chain, None if chain.rows is None else self.logits(chain.rows))

    def _extend_drafts(self, step: DraftStep, drafts: Rowing[PairDraft | PairTree]) -> None:
        """One forward that extends every draft by one depth."""
        parts = [d.pairs() for d in drafts]
        hidden, logits = self.layer.forward(parts)
        step.report_cost(forwards=1, rows=sum(len(p.tokens) for p in parts))
        counts = [p.wanted for p in parts]
        for d, states, rows in zip(drafts, hidden.split(counts), logits.split(counts), strict=True):
            d.take(step, states, self.logits(rows))
