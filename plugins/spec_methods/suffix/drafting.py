"""From a match to a draft: how likely what followed is, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

import attrs

from spec_methods.suffix.automaton import ROOT, Automaton, Match

DECAY = 0.98
"""What evidence keeps whenever more comes: a bad round is forgotten."""
PRIOR_WEIGHT = 4.0


@attrs.define(eq=False)
class Evidence:
    """By match length, decayed: how many drafted tokens were accepted, and how many the counts had predicted."""

    counts: dict[int, list[float]] = attrs.field(factory=dict)

    def estimate(self, match: int) -> float:
        """Estimated chance that a match of this length goes on as it did before."""
        right, promised = self.counts.get(bucket(match), (0.0, 0.0))
        prior = 1 - 1 / (1 + match / 2)
        return min(1.0, (right + PRIOR_WEIGHT * prior) / (promised + PRIOR_WEIGHT))

    def learn(self, match: int, share: float, right: bool) -> None:
        """One token that was tested: the tokens before it were accepted."""
        counts = self.counts.setdefault(bucket(match), [0.0, 0.0])
        counts[0] = counts[0] * DECAY + right
        counts[1] = counts[1] * DECAY + share


def bucket(match: int) -> int:
    """Match lengths that are counted together: 1, 2, 3, 4-7, 8-15, ..."""
    return match if match < 4 else 1 << (match.bit_length() - 1)


@attrs.define(eq=False)
class Node:
    """A token that may be drafted. share: what the counts promise; chance: of its whole path, by the evidence.

    match: length of the context that it followed. then: what the text matches after it.
    """

    token: int
    parent: int
    depth: int
    match: int
    share: float
    chance: float
    then: Match


@attrs.frozen
class Limits:
    """Of one draft. width: most tokens after one; 1 is a chain."""

    depth: int
    nodes: int
    width: int
    p_min: float
    stops: frozenset[int] = frozenset()


def grow(automaton: Automaton, match: Match, evidence: Evidence, limits: Limits) -> list[Node]:
    """The tree of the likeliest paths, parents first, while their chance is at least ``p_min``.

    match: what the committed text ends with. Nothing follows a stop token.
    """
    grown: list[Node] = []
    waiting: list[tuple[float, int, Node]] = []
    pushed = count()

    def offer(match: Match, chance: float, parent: int, depth: int) -> None:
        for node in successors(automaton, match, evidence, limits.width, chance, parent, depth):
            if node.chance >= limits.p_min:
                heappush(waiting, (-node.chance, next(pushed), node))

    offer(match, 1.0, -1, 1)
    while waiting and len(grown) < limits.nodes:
        node = heappop(waiting)[2]
        grown.append(node)
        if node.depth < limits.depth and node.token not in limits.stops:
            offer(node.then, node.chance, len(grown) - 1, node.depth + 1)
    return grown


def successors(
    automaton: Automaton, match: Match, evidence: Evidence, width: int, chance: float, parent: int, depth: int
) -> Iterator[Node]:
    """What followed the longest context; in a tree also what followed shorter ones, with the chance that is left."""
    state, n = automaton.open(match)
    seen: set[int] = set()
    left = 1.0
    while state != ROOT and len(seen) < width:
        estimate = evidence.estimate(n)
        for token, share in automaton.following(state, width):
            if token not in seen and len(seen) < width:
                seen.add(token)
                then = automaton.follow((state, n), token, automaton.depth)
                yield Node(token, parent, depth, n, left * share, chance * left * share * estimate, then)
        left *= 1 - estimate
        state, n = automaton.open(automaton.shorter((state, n)))
