"""Trees for a layer that reads pairs: the most likely paths, depth by depth (2406.16858, section 4).

At every depth the ``width`` most likely nodes are evaluated in one forward, together with their ancestors, and
each proposes ``width`` tokens. The most likely of all proposed tokens are drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import torch
from torch import Tensor

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.kinds import Proposal
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Draft
from spec_core.toolkit.acceptance import AcceptanceEstimate
from spec_core.toolkit.place import COMMITTED, BranchPoint
from spec_core.toolkit.token_drafter import TokenDrafter
from spec_core.toolkit.tree import DraftLimits, TreeLimits, TreeNode, tested_nodes


@attrs.define(eq=False)
class PairNode(TreeNode):
    """own: probability given that its parent is accepted. hidden: the layer's own [1, D] after it, once evaluated."""

    own: float
    hidden: Tensor | None = None


@attrs.define(eq=False)
class PairTree:
    """A tree of one sequence while it is drafted.

    memory: what the layer holds. proposal: how its tokens are chosen, as ``Draft`` says it.
    trust: share of drafts that are accepted, by which every chance is cut.
    growing: nodes that are evaluated next, all of one depth; -1 is committed text.
    finished: the draft, where it was made in one call. place: where it begins.
    """

    seq: Sequence
    memory: Any
    chooser: TokenDrafter
    limits: TreeLimits
    proposal: Proposal
    trust: float
    nodes: list[PairNode] = attrs.field(factory=list)
    growing: list[int] = attrs.field(factory=lambda: [-1])
    hidden: Tensor | None = None
    finished: Draft | None = None
    place: BranchPoint = COMMITTED

    @property
    def open(self) -> bool:
        """Whether another forward is worthwhile."""
        return bool(self.growing)

    def pairs(self) -> Any:
        """The missing pairs of committed text, or the growing nodes after their ancestors."""
        if not self.nodes:
            return self.memory.pairs()
        rows = sorted({i for node in self.growing for i in self._path(node)})
        at = {node: row for row, node in enumerate(rows)}
        before = [self.nodes[i].parent for i in rows]
        hidden = torch.cat([self._hidden_of(parent) for parent in before])
        tokens = [self.nodes[i].token for i in rows]
        return self.memory.tree(tokens, [at.get(parent, -1) for parent in before], hidden, len(self.growing))

    def whole(self, step: DraftStep, chooses: Any) -> DraftLimits | None:
        """Limits of the tree made in one call; None where its tokens have to be chosen here."""
        limits = self.limits
        able = chooses(self.seq.sampling, tree=True)
        chooser = self.chooser.chooser(step, self.seq, limits.depth, ranks=True) if able else None
        if chooser is None:
            return None
        return DraftLimits(limits.depth, limits.nodes, limits.width, limits.p_min, limits.stops, self.trust, chooser)

    def take_finished(self, tree: Any, rows: Tensor | None) -> None:
        """A tree that was made in one call."""
        self.growing = []
        if tree.tokens:
            self.finished = Draft(tree.tokens, self.proposal, parents=tree.parents, confidence=tree.chances)

    def take(self, step: DraftStep, hidden: Tensor, rows: Tensor) -> None:
        """Outputs for the growing nodes: states [n, D] and logits [n, V] over the target's tokens."""
        first = len(self.nodes)
        for i, node in enumerate(self.growing):
            self._learn(node, hidden[i : i + 1])
            self.nodes += self._following(step, node, rows[i])
        kept = {*self._best()}
        new = [i for i in range(first, len(self.nodes)) if i in kept and self._goes_on(self.nodes[i])]
        self.growing = sorted(self._likeliest(new)[: self.limits.width])

    def finish(self) -> Draft | None:
        """The most likely nodes, parents first; None where there are none."""
        if self.finished is not None:
            return self.finished
        kept = self._best()
        at = {node: i for i, node in enumerate(kept)}
        nodes = [self.nodes[i] for i in kept]
        if not nodes:
            return None
        return Draft(
            [node.token for node in nodes],
            self.proposal,
            parents=[at.get(node.parent, -1) for node in nodes],
            confidence=[node.own for node in nodes],
        )

    def _following(self, step: DraftStep, node: int, row: Tensor) -> Iterator[PairNode]:
        """Children of a node. The most likely one is always drafted, since its forward is done."""
        before = [self.nodes[i].token for i in self._path(node)]
        chance = self.nodes[node].chance if node >= 0 else 1.0
        candidates = self.chooser.candidates(step, self.seq, before, row, self.limits.width)
        for rank, (token, own) in enumerate(candidates):
            after = chance * (min(1.0, own) * self.trust)
            if rank == 0 or after >= self.limits.p_min:
                yield PairNode(token, node, len(before) + 1, after, min(1.0, own))

    def _goes_on(self, node: PairNode) -> bool:
        limits = self.limits
        return node.chance >= limits.p_min and node.depth < limits.depth and node.token not in limits.stops

    def _best(self) -> list[int]:
        """Indices of the most likely nodes, up to the limit. A parent is never less likely and comes first."""
        return self._likeliest(range(len(self.nodes)))[: self.limits.nodes]

    def _likeliest(self, nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda i: -self.nodes[i].chance)

    def _path(self, node: int) -> list[int]:
        """A node and its ancestors, root first."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.nodes[node].parent
        return path[::-1]

    def _hidden_of(self, node: int) -> Tensor:
        hidden = self.hidden if node < 0 else self.nodes[node].hidden
        assert hidden is not None
        return hidden

    def _learn(self, node: int, hidden: Tensor) -> None:
        if node < 0:
            self.hidden = hidden
        else:
            self.nodes[node].hidden = hidden


def learn_draft(estimate: AcceptanceEstimate, draft: Draft, path: tuple[int, ...]) -> None:
    """Count the most likely token after each accepted one, as a chain would have drafted it."""
    if draft.parents is None:
        estimate.learn(len(draft), len(path))
        return
    nodes = [TreeNode(token, parent, 0, 0.0) for token, parent in zip(draft.ids, draft.parents, strict=True)]
    seen = set()
    for node, kept in tested_nodes(nodes, path):
        if node.parent not in seen:
            seen.add(node.parent)
            estimate.add(kept, 1)
