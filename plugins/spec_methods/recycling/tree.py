"""Which of the remembered successors are worth checking: the tree whose paths are the likeliest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import attrs
from torch import Tensor

from spec_core.toolkit import AcceptanceEstimates, TreeLimits, TreeNode, grow_tree, tested
from spec_methods.recycling.table import Row, Table

DECAY = 0.99
"""What evidence keeps whenever more comes."""
PRIOR_WEIGHT = 4.0
RANKS = 4
"""Successors by rank: best, second, third, all others."""
NEVER = 1e-6
LONE = 3.0
"""How far a single successor is taken to be ahead of those that were never seen."""

Kind = tuple[int, int]
"""Of a successor: its rank, and how far it leads the second, or is behind the first, in steps of 2/3 nats."""


Scored = list[tuple[float, int]]
"""(score, token), best first."""
Order = Callable[[Row, int], Scored]
"""How the target will choose between successors at a depth, from 1 on."""


def evidence() -> AcceptanceEstimates:
    """How often a successor was right, by its kind; what comes before it being accepted."""
    return AcceptanceEstimates(expected, PRIOR_WEIGHT, DECAY)


@cache
def expected(kind: Kind) -> float:
    """Chance of a successor of this kind before anything was tested."""
    rank, gap = kind[0], kind[1] / 1.5
    return 0.3 * math.exp(-gap / 2) if rank else 1 - 0.68 * math.exp(-gap / 2.4)


@attrs.define(eq=False)
class Node(TreeNode):
    """A token that may be drafted; ``chance`` is that of its whole path."""

    kind: Kind


@attrs.frozen
class Limits(TreeLimits):
    """Of one draft. drawn: a token stays whatever its chance, else the distribution it was drawn from is another."""

    drawn: bool = False


def by_chance(row: Row, depth: int) -> Scored:
    """A greedy target takes the most likely token."""
    return [(math.log(max(chance, NEVER)), token) for token, chance in row]


def by_noise(noise: Callable[[int, list[int]], Tensor], temperature: float) -> Order:
    """A sampling target takes the best sum of log-probability and noise (2408.07978).

    noise: of tokens [n] at the i-th draft.
    """

    def order(row: Row, depth: int) -> Scored:
        if not row:
            return []
        drawn = noise(depth - 1, [token for token, _ in row]).tolist()
        scores = (
            (score / temperature + g, token) for (score, token), g in zip(by_chance(row, depth), drawn, strict=True)
        )
        return sorted(scores, reverse=True)

    return order


def grow(table: Table, last: int, order: Order, evidence: AcceptanceEstimates, limits: Limits) -> list[Node]:
    """The tree of the likeliest paths after ``last``, parents first, while their chance is at least ``p_min``.

    Equal tokens never follow the same one. Nothing follows a stop token.
    """

    def following(token: int, parent: int, depth: int, chance: float) -> Iterator[Node]:
        scored = order(table.rows.get(token, []), depth)
        for (_, successor), kind in zip(scored[: limits.width], kinds(scored), strict=False):
            after = chance * evidence.value(kind)
            if (chance if limits.drawn else after) >= limits.p_min:
                yield Node(successor, parent, depth, after, kind)

    first = following(last, -1, 1, 1.0)
    return grow_tree(first, lambda node, at: following(node.token, at, node.depth + 1, node.chance), limits)


def kinds(scored: Scored) -> Iterator[Kind]:
    """The kind of each of them."""
    if scored:
        best = scored[0][0]
        yield 0, steps(best - scored[1][0] if len(scored) > 1 else LONE)
        for rank, (score, _) in enumerate(scored[1:], 1):
            yield min(rank, RANKS - 1), steps(best - score)


def steps(gap: float) -> int:
    return min(8, int(gap * 1.5))


def learn(evidence: AcceptanceEstimates, nodes: list[Node], path: tuple[int, ...]) -> None:
    """A token was tested if what it follows was accepted; it was right if it is on the path."""
    for node, right in tested(nodes, path):
        evidence.learn(node.kind, right)
