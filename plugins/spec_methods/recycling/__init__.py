"""Draft from the successors that the target last thought likely after each token, rejected rows included.

Token recycling: Luo et al., "Turning Trash into Treasure", 2408.08696. An adjacency matrix is updated from every
verified row; the draft is its most likely tree. Here the rows keep their probabilities, so that the tree can follow
the probabilities and, where the target samples, the shared noise.

Example: the last row after ``the`` gave ``cat`` 0.6 and ``dog`` 0.3, the last one after ``cat`` gave ``sat`` 0.5. After
``the`` the tree is ``cat`` (0.6) with ``sat`` below it (0.3), and ``dog`` (0.3).
"""

from __future__ import annotations

from typing import Literal

import attrs
import torch
from attrs.validators import and_, ge, gt, le, optional
from torch import Tensor

from spec_core import Compat, Draft, Needs, Sequence, StashKey, Step, Target, hookimpl
from spec_core.toolkit import AcceptanceEstimates, likeliest
from spec_methods.recycling.table import Table
from spec_methods.recycling.tree import Limits, Node, Order, by_chance, by_noise, evidence, grow, learn

P_MIN = 0.3
"""Where neither the user nor a controller gives one."""


@attrs.define(eq=False)
class Memory:
    """What is kept about one sequence. drafted: the tree under way."""

    seq: Sequence
    table: Table
    evidence: AcceptanceEstimates = attrs.field(factory=evidence)
    drafted: list[Node] = attrs.field(factory=list)


@attrs.define(eq=False)
class Recycling:
    """Drafts trees from what the target's own rows named; needs nothing."""

    k: int = attrs.field(default=8, validator=[ge(1), le(64)], metadata={"help": "successors kept per token"})
    width: int = attrs.field(
        default=8, validator=[ge(1), le(64)], metadata={"help": "most tokens after one; 1 drafts chains", "off": 1}
    )
    draft_max: int = attrs.field(default=16, validator=[ge(1), le(256)], metadata={"help": "longest path", "off": 256})
    nodes_max: int = attrs.field(
        default=24, validator=[ge(1), le(256)], metadata={"help": "most tokens of a tree", "off": 256}
    )
    p_min: float | None = attrs.field(
        default=None,
        validator=optional(and_(ge(0.0), le(1.0))),
        metadata={
            "help": "draft paths that are at least this likely; default: 0.3, or a controller's price",
            "off": 0.0,
        },
    )
    fresh: float = attrs.field(
        default=0.5, validator=[gt(0.0), le(1.0)], metadata={"help": "weight of a new row; 1 keeps the last one only"}
    )
    sample: Literal["auto", "greedy"] = attrs.field(
        default="auto", metadata={"help": "auto: by the request's noise where it samples; greedy: always the likeliest"}
    )
    shared: bool = attrs.field(
        default=False, metadata={"help": "one matrix for all sequences of the run; visible to others in timing"}
    )
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)
    common: Table | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Target | None = None) -> None:
        """Forget what sequences share: in a second run a draft could meet the noise that once chose its tokens."""
        self.common = Table(self.k, self.fresh) if self.shared else None

    @hookimpl
    def compat(self, target: Target) -> Compat:
        kinds = {"deterministic"} if self.sample == "greedy" else {"deterministic", "sampled", "unknown"}
        needs = Needs(trees=self.width > 1 and target.info.trees)
        return Compat(needs=needs, drafts=kinds, forwards=lambda k: 0, load=self._begin)

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted:
            memory = self._memory(seq)
            limits = self._limits(step, seq, budget)
            memory.drafted = grow(memory.table, seq.tokens[-1], self._order(step, seq), memory.evidence, limits)
            if memory.drafted:
                step.propose(seq, self._draft(step, memory, limits))

    @hookimpl
    def rollback(self, step: Step) -> None:
        """Learn from all verified rows, the kept path last, and from what was accepted of the own draft."""
        concerned = [seq for seq in step.verdicts if seq.wants(step.asking)]
        rows = likeliest(step.output.logits, self.k) if concerned else []
        for seq in concerned:
            memory, part = self._memory(seq), step.part(seq)
            if part.source == step.asking:
                learn(memory.evidence, memory.drafted, part.uncut.path)
            tokens = [seq.tokens[-1], *(part.draft.ids if part.draft else ())]
            kept = [0, *(1 + i for i in part.uncut.path)]
            for i in [*sorted(set(range(len(tokens))) - set(kept)), *kept]:
                memory.table.learn(tokens[i], rows[part.at + i])

    def _memory(self, seq: Sequence) -> Memory:
        """A new sequence begins with its prompt, and forgets what its slot's last one left."""
        memory = seq.stash.get(self.memory)
        if memory is None or memory.seq is not seq:
            memory = seq.stash[self.memory] = Memory(seq, self.common or Table(self.k, self.fresh))
            memory.table.read(seq.tokens[: seq.prompt_len])
        return memory

    def _samples(self, step: Step, seq: Sequence) -> bool:
        """Draw by noise only where the target reads the same noise, or where a rule reads ``probs``."""
        useful = step.wants_probs or not step.private
        return seq.sampling.temperature > 0 and self.sample == "auto" and useful

    def _order(self, step: Step, seq: Sequence) -> Order:
        if not self._samples(step, seq):
            return by_chance
        return by_noise(lambda i, ids: step.noise(seq, i, ids=ids), seq.sampling.temperature)

    def _limits(self, step: Step, seq: Sequence, budget: int) -> Limits:
        depth, stops = min(budget, self.draft_max), seq.stop.tokens
        p_min = step.price(seq, self.p_min, P_MIN)
        drawn = step.wants_probs and self._samples(step, seq)
        if drawn or self.width == 1 or not step.trees:
            return Limits(depth, depth, 1, p_min, stops, drawn)
        return Limits(depth, min(step.nodes(seq), self.nodes_max), self.width, p_min, stops)

    def _draft(self, step: Step, memory: Memory, limits: Limits) -> Draft:
        nodes, seq = memory.drafted, memory.seq
        tokens, confidence = [node.token for node in nodes], [node.chance for node in nodes]
        if limits.drawn:
            before, info = [seq.tokens[-1], *tokens[:-1]], step.target.info
            probs = drawn_from(memory.table, before, seq.sampling.temperature, info.vocab)
            return Draft(tokens, probs=probs.to(info.device), confidence=confidence)
        parents = None if limits.width == 1 else [node.parent for node in nodes]
        proposal: Literal["unknown", "deterministic"] = "unknown" if self._samples(step, seq) else "deterministic"
        return Draft(tokens, proposal, parents=parents, confidence=confidence)


def drawn_from(table: Table, tokens: list[int], temperature: float, vocab: int) -> Tensor:
    """[K, vocab]: the distribution after each of the tokens, which noise draws from."""
    probs = torch.zeros(len(tokens), vocab)
    for row, token in zip(probs, tokens, strict=True):
        scores, ids = zip(*by_chance(table.rows[token], 1), strict=True)
        row[list(ids)] = torch.softmax(torch.tensor(scores) / temperature, -1)
    return probs
