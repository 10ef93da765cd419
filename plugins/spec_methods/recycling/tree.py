"""Which of the remembered successors are worth checking: the tree whose paths are the likeliest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from heapq import heappop, heappush
from itertools import count

import attrs
from torch import Tensor

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
"""Of a successor: its rank, and how far it leads the second, or trails the first, in steps of 2/3 nats."""


Scored = list[tuple[float, int]]
"""(score, token), best first."""
Order = Callable[[Row, int], Scored]
"""How the target will choose between successors at a depth, from 1 on."""


@attrs.define(eq=False)
class Evidence:
    """How often a successor was right, by its kind; decayed counts over a prior."""

    counts: dict[Kind, list[float]] = attrs.field(factory=dict)

    def chance(self, kind: Kind) -> float:
        """Estimated chance that the target chooses it, what comes before it being accepted."""
        rank, gap = kind[0], kind[1] / 1.5
        prior = 0.3 * math.exp(-gap / 2) if rank else 1 - 0.68 * math.exp(-gap / 2.4)
        right, tested = self.counts.get(kind, (0.0, 0.0))
        return (right + PRIOR_WEIGHT * prior) / (tested + PRIOR_WEIGHT)

    def learn(self, kind: Kind, right: bool) -> None:
        counts = self.counts.setdefault(kind, [0.0, 0.0])
        counts[:] = counts[0] * DECAY + right, counts[1] * DECAY + 1


@attrs.define(eq=False)
class Node:
    """A token that may be drafted; ``chance`` is that of its whole path."""

    token: int
    parent: int
    depth: int
    kind: Kind
    chance: float


@attrs.frozen
class Limits:
    """Of one draft. width: most tokens after one.

    drawn: no token is left out for its chance, else the others would not be distributed as they were drawn.
    """

    depth: int
    nodes: int
    width: int
    p_min: float
    drawn: bool = False
    stops: frozenset[int] = frozenset()


def by_chance(row: Row, depth: int) -> Scored:
    """A greedy target takes the most likely token."""
    return [(math.log(max(chance, NEVER)), token) for token, chance in row]


def by_noise(noise: Callable[[int], Tensor], temperature: float) -> Order:
    """A sampling target takes the best sum of log-probability and noise (2408.07978). noise: of the i-th draft, [V]."""

    at = cache(lambda depth: noise(depth - 1).numpy())  # nodes of one depth read the same

    def order(row: Row, depth: int) -> Scored:
        drawn = at(depth)
        scores = ((score / temperature + float(drawn[token]), token) for score, token in by_chance(row, depth))
        return sorted(scores, reverse=True)

    return order


def grow(table: Table, last: int, order: Order, evidence: Evidence, limits: Limits) -> list[Node]:
    """The tree of the likeliest paths after ``last``, parents first, while their chance is at least ``p_min``.

    Equal tokens never follow the same one. Nothing follows a stop token.
    """
    grown: list[Node] = []
    waiting: list[tuple[float, int, Node]] = []
    pushed = count()

    def offer(token: int, parent: int, depth: int, chance: float) -> None:
        scored = order(table.rows.get(token, []), depth)
        for (_, successor), kind in zip(scored[: limits.width], kinds(scored), strict=False):
            after = chance * evidence.chance(kind)
            if (chance if limits.drawn else after) >= limits.p_min:
                heappush(waiting, (-after, next(pushed), Node(successor, parent, depth, kind, after)))

    offer(last, -1, 1, 1.0)
    while waiting and len(grown) < limits.nodes:
        node = heappop(waiting)[2]
        grown.append(node)
        if node.depth < limits.depth and node.token not in limits.stops:
            offer(node.token, len(grown) - 1, node.depth + 1, node.chance)
    return grown


def kinds(scored: Scored) -> Iterator[Kind]:
    """The kind of each of them."""
    if scored:
        best = scored[0][0]
        yield 0, steps(best - scored[1][0] if len(scored) > 1 else LONE)
        for rank, (score, _) in enumerate(scored[1:], 1):
            yield min(rank, RANKS - 1), steps(best - score)


def steps(gap: float) -> int:
    return min(8, int(gap * 1.5))


def learn(evidence: Evidence, nodes: list[Node], path: tuple[int, ...]) -> None:
    """A token was tested if what it follows was accepted; it was right if it is on the path."""
    kept = {-1, *path}
    for i, node in enumerate(nodes):
        if node.parent in kept:
            evidence.learn(node.kind, i in kept)
