"""Drafts the tokens that were likely in the target's last row after each token, rejected rows included.

Token recycling: Luo et al., "Turning Trash into Treasure", 2408.08696. An adjacency matrix is updated from every
verified row; the draft is its most likely tree. Here the rows keep their probabilities, so that the tree can use
the probabilities and, if the target samples, the shared noise.

Example: the last row after ``the`` gave ``cat`` 0.6 and ``dog`` 0.3, the last one after ``cat`` gave ``sat`` 0.5. After
``the`` the tree is ``cat`` (0.6) with ``sat`` below it (0.3), and ``dog`` (0.3).
"""

from __future__ import annotations

from typing import Literal

import attrs
import torch
from attrs.validators import ge, gt, le
from torch import Tensor

from spec_core import Compat, Draft, DraftStep, Needs, RollbackStep, Sequence, StashKey, Target, hookimpl
from spec_core.toolkit import BranchPoint, confidences, most_likely, p_min_field
from spec_methods.recycling.successors import Table
from spec_methods.recycling.tree import (
    Evidence,
    Limits,
    Node,
    Order,
    by_chance,
    by_noise,
    grow_recycled_tree,
    learn_path,
)

COMMITTED = BranchPoint()
"""The place after committed text."""
P_MIN = 0.3
"""Default that holds if neither the user nor a controller sets one."""


@attrs.define(eq=False)
class RecyclingState:
    """Data of one sequence. drafted: the current trees, by the leaf that each follows."""

    seq: Sequence
    table: Table
    evidence: Evidence = attrs.field(factory=Evidence)
    drafted: dict[int, list[Node]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Recycling:
    """Drafts trees of likely next tokens from earlier verified rows; needs no model."""

    k: int = attrs.field(default=8, validator=[ge(1), le(64)], metadata={"help": "successors kept per token"})
    width: int = attrs.field(
        default=8, validator=[ge(1), le(64)], metadata={"help": "max children of a token; 1 drafts chains", "off": 1}
    )
    draft_max: int = attrs.field(
        default=16, validator=[ge(1), le(256)], metadata={"help": "max path length", "off": 256}
    )
    nodes_max: int = attrs.field(
        default=24, validator=[ge(1), le(256)], metadata={"help": "max tokens of a tree", "off": 256}
    )
    p_min: float | None = p_min_field("min estimated probability of a drafted path; 0.3")
    fresh: float = attrs.field(
        default=0.5, validator=[gt(0.0), le(1.0)], metadata={"help": "weight of a new row; 1 keeps the last one only"}
    )
    sample: Literal["auto", "greedy"] = attrs.field(
        default="auto", metadata={"help": "auto: with the request's noise if it samples; greedy: the most likely"}
    )
    shared: bool = attrs.field(
        default=False,
        metadata={"help": "one matrix for all sequences without a cache salt; others can notice it by timing"},
    )
    extend: bool = attrs.field(default=False, metadata={"help": "extend the drafts of methods named before it"})
    memory: StashKey[RecyclingState] = attrs.field(factory=StashKey, init=False)
    common: Table | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Target | None = None) -> None:
        """Clear shared data: in a second run a draft could meet the noise that its tokens were chosen with."""
        self.common = Table(self.k, self.fresh) if self.shared else None

    @hookimpl
    def compat(self, target: Target) -> Compat:
        kinds = {"deterministic"} if self.sample == "greedy" else {"deterministic", "greedy", "sampled", "unknown"}
        needs = Needs(trees=self.width > 1 and target.info.trees, logits=True)
        return Compat(
            needs=needs, drafts=kinds, extends=self.extend, forwards=lambda k: 0, load=self._begin, learns="tokens",
            shares_learning=self.shared,
        )  # fmt: skip

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, draft, leaf, budget in step.leaves:
            place, limits = BranchPoint.behind(draft, leaf), self._limits(step, seq, budget, len(draft))
            if (more := self._ahead(step, seq, place, limits)) is not None:
                step.extend(seq, more, leaf)
        for seq, budget in step.undrafted:
            if (draft := self._ahead(step, seq, COMMITTED, self._limits(step, seq, budget))) is not None:
                step.propose(seq, draft)

    def _ahead(self, step: DraftStep, seq: Sequence, point: BranchPoint, limits: Limits) -> Draft | None:
        """Draft after committed text and the drafted tokens before ``point``, or None."""
        memory, last = self._memory(seq), point.path[-1] if point.path else seq.tokens[-1]
        order = self._order(step, seq, point)
        memory.drafted[point.leaf] = nodes = grow_recycled_tree(memory.table, last, order, memory.evidence, limits)
        return self._draft(step, memory, nodes, last, limits) if nodes else None

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        """Learn from all verified rows, the kept path last, and from the acceptance of the own draft."""
        concerned = [seq for seq in step.verdicts if seq.wants(step.plugin)]
        if not concerned:
            return
        for seq, share in step.draft_results:
            memory = self._memory(seq)
            learn_path(memory.evidence, memory.drafted[share.leaf], share.full_verdict.path)
        rows = most_likely(step.output.logits, self.k)
        for seq in concerned:
            part, table = step.part(seq), self._memory(seq).table
            drafted = part.draft.ids if part.draft else ()
            for i in sorted(set(range(len(drafted))).difference(part.full_verdict.path)):
                table.learn(drafted[i], rows[part.logits_row + 1 + i])
            table.learn(seq.tokens[-1], rows[part.logits_row])
            for i in part.full_verdict.path:
                table.learn(drafted[i], rows[part.logits_row + 1 + i])

    def _memory(self, seq: Sequence) -> RecyclingState:
        """The data of a sequence. A new one learns its prompt and drops the data of the slot's last sequence."""
        memory = seq.stash.get(self.memory)
        if memory is None or memory.seq is not seq:
            table = None if seq.cache_salt else self.common
            memory = seq.stash[self.memory] = RecyclingState(seq, table or Table(self.k, self.fresh))
            memory.table.read(seq.tokens[: seq.prompt_len])
        return memory

    def _samples(self, step: DraftStep, seq: Sequence) -> bool:
        """Whether to draw with noise: if the target reads the same noise, or a rule reads ``probs``."""
        useful = step.wants_probs or not step.private
        return seq.sampling.temperature > 0 and self.sample == "auto" and useful

    def _order(self, step: DraftStep, seq: Sequence, point: BranchPoint) -> Order:
        """point: where it begins; after every leaf of another method's tree it draws with noise of its own."""
        if not self._samples(step, seq):
            return by_chance
        before, branch = len(point.path), point.branch
        return by_noise(lambda i, ids: step.noise(seq, before + i, branch, ids=ids), seq.sampling.temperature)

    def _limits(self, step: DraftStep, seq: Sequence, budget: int, drafted: int = 0) -> Limits:
        """drafted: tokens that other methods drafted in this step."""
        depth, stops = min(budget, self.draft_max), seq.stop.tokens
        p_min = step.price(seq, self.p_min, P_MIN)
        drawn = step.wants_probs and self._samples(step, seq)
        if drawn or self.width == 1 or not step.trees:
            return Limits(depth, depth, 1, p_min, stops, drawn)
        return Limits(depth, min(step.nodes(seq) - drafted, self.nodes_max), self.width, p_min, stops)

    def _draft(self, step: DraftStep, state: RecyclingState, nodes: list[Node], last: int, limits: Limits) -> Draft:
        """last: the token before the first node."""
        seq = state.seq
        tokens, confidence = [node.token for node in nodes], confidences(nodes)
        if limits.drawn:
            before, info = [last, *tokens[:-1]], step.target.info
            probs = drawn_from(state.table, before, seq.sampling.temperature, info.vocab)
            return Draft(tokens, probs=probs.to(info.device), confidence=confidence)
        parents = None if limits.width == 1 else [node.parent for node in nodes]
        proposal: Literal["unknown", "deterministic"] = "unknown" if self._samples(step, seq) else "deterministic"
        return Draft(tokens, proposal, parents=parents, confidence=confidence)


def drawn_from(table: Table, tokens: list[int], temperature: float, vocab: int) -> Tensor:
    """[K, vocab]: the distribution after each of the tokens, from which noise draws."""
    probs = torch.zeros(len(tokens), vocab)
    for row, token in zip(probs, tokens, strict=True):
        scores, ids = zip(*by_chance(table.rows[token], 1), strict=True)
        row[list(ids)] = torch.softmax(torch.tensor(scores) / temperature, -1)
    return probs
