"""Chooses which of the stored successors to draft: the tree of the most likely paths."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
from torch import Tensor

from spec_core.toolkit import AcceptanceEstimates, TreeLimits, TreeNode, grow_tree, tested_nodes
from spec_methods.recycling.successors import Row, Table

DECAY = 0.99
"""Decay of the counts."""
PRIOR_WEIGHT = 4.0
RANKS = 4
"""Ranks of successors: best, second, third, all others."""
NEVER = 1e-6
LONE = 3.0
"""Lead, in nats, of a single successor over tokens that were never seen."""

Kind = tuple[int, int]
"""Kind of a successor: its rank, and its lead over the second or distance from the first, in steps of 2/3 nats."""


Scored = list[tuple[float, int]]
"""(score, token), best first."""
Order = Callable[[Row, int], Scored]
"""Orders successors, one at least, at a depth, from 1 on, as the target will choose between them."""


def prior(kind: Kind) -> float:
    """Expected acceptance of a successor of this kind before anything was tested."""
    rank, gap = kind[0], kind[1] / 1.5
    return 0.3 * math.exp(-gap / 2) if rank else 1 - 0.68 * math.exp(-gap / 2.4)


@attrs.define(eq=False)
class Evidence:
    """Estimates of how often a successor of each kind was right, given that its parent was accepted.

    known: {kind: its estimate}, until more is learned of it: a tree asks for many, and few of them are tested.
    """

    estimates: AcceptanceEstimates = attrs.field(factory=lambda: AcceptanceEstimates(prior, PRIOR_WEIGHT, DECAY))
    known: dict[Kind, float] = attrs.field(factory=dict)

    def value(self, kind: Kind) -> float:
        acceptance = self.known.get(kind)
        if acceptance is None:
            acceptance = self.known[kind] = self.estimates.value(kind)
        return acceptance

    def learn(self, kind: Kind, right: bool) -> None:
        self.known.pop(kind, None)
        self.estimates.learn(kind, right)


@attrs.define(eq=False)
class Node(TreeNode):
    """A token that may be drafted; ``chance`` is the probability of its whole path."""

    kind: Kind


@attrs.frozen
class Limits(TreeLimits):
    """Limits of one draft. drawn: keep unlikely tokens too, since dropping them would change q."""

    drawn: bool = False


def by_chance(row: Row, depth: int) -> Scored:
    """A greedy target takes the most likely token."""
    return [(math.log(max(chance, NEVER)), token) for token, chance in row]


def by_noise(noise: Callable[[int, list[int]], Tensor], temperature: float) -> Order:
    """A sampling target takes the max of log-probability plus noise (2408.07978).

    noise: of tokens [n] at the i-th draft.
    """

    def order(row: Row, depth: int) -> Scored:
        drawn = noise(depth - 1, [token for token, _ in row]).tolist()
        scores = (
            (score / temperature + g, token) for (score, token), g in zip(by_chance(row, depth), drawn, strict=True)
        )
        return sorted(scores, reverse=True)

    return order


def grow_recycled_tree(table: Table, last: int, order: Order, evidence: Evidence, limits: Limits) -> list[Node]:
    """The tree of the most likely paths after ``last``, parents first, with a probability of at least ``p_min``.

    A token's children are distinct. Nothing follows a stop token.
    """
    width, p_min, drawn, value = limits.width, limits.p_min, limits.drawn, evidence.value

    def following(token: int, parent: int, depth: int, chance: float) -> list[Node]:
        row = table.rows.get(token)
        if not row:
            return []
        nodes, scored = [], order(row, depth)
        for (_, successor), kind in zip(scored, kinds(scored, width), strict=False):
            after = chance * value(kind)
            if (chance if drawn else after) >= p_min:
                nodes.append(Node(successor, parent, depth, after, kind))
        return nodes

    first = following(last, -1, 1, 1.0)
    return grow_tree(first, lambda node, at: following(node.token, at, node.depth + 1, node.chance), limits)


def kinds(scored: Scored, count: int) -> list[Kind]:
    """The kinds of the first ``count`` successors, of one at least."""
    best = scored[0][0]
    lead = best - scored[1][0] if len(scored) > 1 else LONE
    others = [
        (rank if rank < RANKS else RANKS - 1, steps(best - score)) for rank, (score, _) in enumerate(scored[1:count], 1)
    ]
    return [(0, steps(lead)), *others]


def steps(gap: float) -> int:
    count = int(gap * 1.5)
    return count if count < 8 else 8  # without a call of min: it is made for every successor


def learn_path(evidence: Evidence, nodes: list[Node], path: tuple[int, ...]) -> None:
    """Count a token as tested if its parent was accepted, and as accepted if it is on the path."""
    for node, right in tested_nodes(nodes, path):
        evidence.learn(node.kind, right)
