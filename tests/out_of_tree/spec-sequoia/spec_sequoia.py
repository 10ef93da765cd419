"""Sequoia (Chen et al., 2402.12374): the best tree of a fixed size, drafted by a smaller model, level by level.

The chance that the k-th most likely token is accepted decides the shape of the tree; it is given and never changes.
Draft rows of a level stay in the draft model, and the next level follows them, so a token is evaluated once::

    spec generate -m zoo:pico --method sequoia=zoo:pico-draft -p "def add(a, b):"
"""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
from attrs.validators import ge, le

from spec_core import Compat, Draft, DraftStep, Needs, Part, Refusal, Sequence, StashKey, Target, hookimpl, load
from spec_core.toolkit import (
    TokenDrafter,
    TreeLimits,
    TreeNode,
    confidences,
    follow_problem,
    forward,
    grow_tree,
    open_sequence,
)

RANKS = "0.6+0.14+0.07+0.04"
TREES = Needs(trees=True)


@cache
def shape_of(ranks: tuple[float, ...], depth: int, nodes: int) -> list[TreeNode]:
    """The most likely nodes of a tree, depth by depth; the token of each is its rank among the children."""
    after = lambda parent, below, chance: [
        TreeNode(rank, parent, below + 1, chance * one) for rank, one in enumerate(ranks)
    ]
    limits = TreeLimits(depth, nodes, len(ranks), 0.0)
    grown = grow_tree(after(-1, 0, 1.0), lambda node, at: after(at, node.depth, node.chance), limits)
    order = sorted(range(len(grown)), key=lambda i: grown[i].depth)
    place = {-1: -1, **{i: at for at, i in enumerate(order)}}
    return [attrs.evolve(grown[i], parent=place[grown[i].parent]) for i in order]


@attrs.define(eq=False)
class Memory:
    """A sequence of the draft model, and the committed tokens that it has evaluated."""

    seq: Sequence
    tokens: list[int] = attrs.field(factory=list)


@attrs.define(eq=False)
class Growing:
    """The tree of one sequence while it grows. nodes: with their tokens. at: of each place of the shape that has one.

    evaluated: the nodes that have a row in the draft model, in its order. part: their last forward's.
    """

    seq: Sequence
    shape: list[TreeNode]
    part: Part
    nodes: list[TreeNode] = attrs.field(factory=list)
    at: dict[int, int] = attrs.field(factory=lambda: {-1: -1})
    evaluated: list[int] = attrs.field(factory=list)

    def path(self, node: int) -> list[int]:
        """Tokens from the root to a node."""
        if node < 0:
            return []
        return [*self.path(self.nodes[node].parent), self.nodes[node].token]

    def children(self, place: int) -> list[int]:
        return [i for i, node in enumerate(self.shape) if node.parent == place]

    def next_part(self) -> Part | None:
        """The part that evaluates the next level: nodes with children; None where no node has any."""
        inner = [i for i in self.at if i >= 0 and self.at[i] not in self.evaluated and self.children(i)]
        if not inner:
            return None
        self.evaluated += [self.at[i] for i in inner]
        row = {-1: -1, **{node: i for i, node in enumerate(self.evaluated)}}
        draft = Draft(
            [self.nodes[i].token for i in self.evaluated], parents=[row[self.nodes[i].parent] for i in self.evaluated]
        )
        self.part = Part(self.part.seq, self.part.end, [], decides=True, draft=draft)
        return self.part

    def take(self, step: DraftStep, drafter: TokenDrafter, logits: Any) -> None:
        """Add the children of the nodes whose rows were evaluated."""
        draft = self.part.draft
        rows = {-1: -1} if draft is None else {self.evaluated[j]: j for j in range(self.part.held, len(draft))}
        for place, node in list(self.at.items()):
            if node not in rows:
                continue
            children = self.children(place)
            row = logits[self.part.logits_row + 1 + rows[node]]
            candidates = drafter.candidates(step, self.seq, self.path(node), row, len(children))
            for child, (token, _) in zip(children, candidates, strict=False):
                self.at[child] = len(self.nodes)
                self.nodes.append(attrs.evolve(self.shape[child], token=token, parent=node))


@attrs.define(eq=False)
class Sequoia:
    """Draft the tree of a fixed shape that a smaller model fills."""

    file: str = attrs.field(default="", metadata={"help": "the draft model"})
    nodes_max: int = attrs.field(default=12, validator=[ge(1), le(256)], metadata={"help": "tokens of the tree"})
    draft_max: int = attrs.field(default=6, validator=[ge(1), le(64)], metadata={"help": "longest path"})
    ranks: str = attrs.field(default=RANKS, metadata={"help": "chance that the k-th most likely token is accepted"})
    model: Any = attrs.field(default=None, init=False)
    drafter: TokenDrafter = attrs.field(factory=lambda: TokenDrafter(0.0), init=False)
    memory: StashKey[Memory] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self, target: Target) -> Compat:
        if not self.file:
            return Compat(refusals=[Refusal("no draft model is named", "write --method sequoia=FILE")])
        described = load(self.file, weights=False)
        problem = follow_problem(described)
        if problem is None and described.info.vocab_id != target.info.vocab_id:
            problem = f"its vocabulary is not that of {target.info.name}"
        wrong = [Refusal(f"{described.info.name} cannot draft trees: {problem}", "name another model")]
        return Compat(
            needs=TREES,
            drafts={"deterministic", "unknown"},
            refusals=wrong if problem else [],
            forwards=lambda depth: depth,
            load=self.load,
            catches_up=True,
        )

    def load(self, target: Target) -> None:
        self.model = load(self.file, threads=1)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        trees = [tree for seq, budget in step.undrafted if (tree := self.begin(step, seq, budget)) is not None]
        growing = {tree: tree.part for tree in trees}
        done = None
        while growing:
            done = forward(self.model, growing.values(), TREES, follows=done)
            step.report_cost(forwards=1, rows=done.batch.tokens.numel())
            for tree in growing:
                tree.take(step, self.drafter, done.output.logits)
            growing = {tree: part for tree in growing if (part := tree.next_part()) is not None}
        for tree in trees:
            if tree.nodes:
                self.propose(step, tree)

    def begin(self, step: DraftStep, seq: Sequence, budget: int) -> Growing | None:
        depth, tokens = min(budget, self.draft_max), seq.tokens
        if seq.embeds or len(tokens) + depth > self.model.info.context:
            return None
        ranks = tuple(float(chance) for chance in self.ranks.split("+"))
        shape = shape_of(ranks, depth, min(step.nodes(seq), self.nodes_max))
        memory = seq.stash.get(self.memory)
        if memory is None:
            memory = seq.stash[self.memory] = Memory(open_sequence(self.model, close_when_dropped=True))
        start = next((i for i, (a, b) in enumerate(zip(memory.tokens, tokens, strict=False)) if a != b), None)
        start = min(len(memory.tokens) if start is None else start, len(tokens) - 1)
        memory.tokens = list(tokens)
        return Growing(seq, shape, Part(memory.seq, start, tokens[start:], decides=True))

    def propose(self, step: DraftStep, tree: Growing) -> None:
        drawn = self.drafter.uses_target_noise(step, tree.seq)
        step.propose(
            tree.seq,
            Draft(
                [node.token for node in tree.nodes],
                "unknown" if drawn else "deterministic",
                parents=[node.parent for node in tree.nodes],
                confidence=confidences(tree.nodes),
            ),
        )
