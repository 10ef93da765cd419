"""Drafts from a match: the likelihood of continuations, and the length of the draft."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from spec_core.toolkit import AcceptanceEstimates, TreeLimits, TreeNode, grow_tree, match_estimates
from spec_methods.suffix.automaton import ROOT, Automaton, Match

DECAY = 0.98
"""Decay of the counts, so that old rejections lose weight."""
PRIOR_WEIGHT = 4.0


def new_estimates() -> AcceptanceEstimates:
    """Estimates by match length: accepted tokens divided by the number that the counts predicted."""
    return match_estimates(PRIOR_WEIGHT, DECAY)


@attrs.define(eq=False)
class Node(TreeNode):
    """A token that may be drafted; its probability is that of its whole path, corrected by the estimates.

    match: length of the context that it followed. share: frequency by the counts. then: the match after this token.
    """

    match: int
    share: float
    then: Match


def grow_suffix_tree(
    automaton: Automaton, match: Match, estimates: AcceptanceEstimates, limits: TreeLimits
) -> list[Node]:
    """The tree of the most likely paths, parents first, with a probability of at least ``p_min``.

    match: the match at the end of committed text. Nothing follows a stop token.
    """
    if limits.width == 1:
        return chain(automaton, match, estimates, limits)

    def following(match: Match, chance: float, parent: int, depth: int) -> Iterator[Node]:
        nodes = successors(automaton, match, estimates, limits.width, chance, parent, depth)
        return (node for node in nodes if node.chance >= limits.p_min)

    first = following(match, 1.0, -1, 1)
    return grow_tree(first, lambda node, at: following(node.then, node.chance, at, node.depth + 1), limits)


def chain(automaton: Automaton, match: Match, estimates: AcceptanceEstimates, limits: TreeLimits) -> list[Node]:
    """Draft of width 1, in less time than a tree: the most likely token after each other."""
    nodes: list[Node] = []
    chance, longest = 1.0, automaton.match_max
    for depth in range(1, min(limits.depth, limits.nodes) + 1):
        state, n = automaton.open(match)
        if state == ROOT:
            break
        [(token, share)] = automaton.following(state, 1)
        chance = chance * share * estimates.value(n)
        if chance < limits.p_min:
            break
        match = automaton.follow((state, n), token, longest)
        nodes.append(Node(token, depth - 2, depth, chance, n, share, match))
        if token in limits.stops:
            break
    return nodes


def successors(
    automaton: Automaton,
    match: Match,
    estimates: AcceptanceEstimates,
    width: int,
    chance: float,
    parent: int,
    depth: int,
) -> Iterator[Node]:
    """Continuations of the longest context; in trees also of shorter ones, with the remaining probability."""
    state, n = automaton.open(match)
    seen: set[int] = set()
    left = 1.0
    while state != ROOT and len(seen) < width:
        estimate = estimates.value(n)
        for token, share in automaton.following(state, width):
            if token not in seen and len(seen) < width:
                seen.add(token)
                then = automaton.follow((state, n), token, automaton.match_max)
                yield Node(token, parent, depth, chance * left * share * estimate, n, left * share, then)
        left *= 1 - estimate
        state, n = automaton.open(automaton.shorter((state, n)))
