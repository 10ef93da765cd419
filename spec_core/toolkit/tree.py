"""Best-first growth of a tree draft: the most likely paths first, up to the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Literal, TypeVar

import attrs

from spec_core.sampling.reference import NoiseKey


@attrs.define(eq=False)
class TreeNode:
    """A token that may be drafted. A method may inherit and add fields that it learns from.

    parent: index of its parent in the grown tree, -1 is committed text. depth: 1 follows committed text.
    chance: probability that its whole path is accepted.
    """

    token: int
    parent: int
    depth: int
    chance: float


@attrs.frozen
class TreeLimits:
    """Limits of one draft. depth: max path. nodes: max tokens. width: max children of a token; 1 is a chain.

    p_min: less likely paths are left out, by the code that proposes them. stops: tokens without children.
    """

    depth: int
    nodes: int
    width: int
    p_min: float
    stops: frozenset[int] = frozenset()


@attrs.frozen
class DraftNoise:
    """Noise that draws the tokens of a chain.

    source, position: key and output position of the first token's noise, ``Step.drawing``. onward: what is added to
    position and domain for every token. chance: of a token, by the distance of its score to the second.
    """

    temperature: float
    source: NoiseKey
    position: int
    onward: tuple[int, int]
    chance: Callable[[float], float]


@attrs.frozen
class DraftLimits(TreeLimits):
    """Limits of a draft that is made in one call, as ``spec_kernels.model.drafts`` describes it.

    trust: share of drafts that is accepted, by which every chance is multiplied. chooser: who chooses its tokens,
    ``TokenDrafter.chooser``; None takes the most likely one. noise: the same for executors that draw on a device.
    before: drafted tokens before it that the same chooser chose.
    rows: nodes evaluated in a forward, the best of any depth, where a row depends on no other row; 0: ``width`` at each
    depth. shared: what such a row depends on, all tokens drafted before it, the last, or none.
    """

    trust: float = 1.0
    chooser: Any = None
    noise: DraftNoise | None = None
    before: tuple[int, ...] = ()
    rows: int = 0
    shared: Literal["path", "token", "depth"] = "path"


Node = TypeVar("Node", bound=TreeNode)


def grow_tree(
    first: Iterable[Node], following: Callable[[Node, int], Iterable[Node]], limits: TreeLimits
) -> list[Node]:
    """The most likely nodes, parents before children; equally likely ones in the order proposed.

    first: candidates after committed text. following: candidates after a kept node, called with its index.
    """
    grown: list[Node] = []
    waiting: list[tuple[float, int, Node]] = []
    order = count()
    new = first
    while True:
        for node in new:
            heappush(waiting, (-node.chance, next(order), node))
        if not waiting or len(grown) >= limits.nodes:
            return grown
        best = heappop(waiting)[2]
        grown.append(best)
        ends = best.depth >= limits.depth or best.token in limits.stops
        new = () if ends else following(best, len(grown) - 1)


def confidences(nodes: Sequence[TreeNode]) -> list[float]:
    """Probability of each node that it is accepted if its parent is: its path's by that of its parent."""
    before = (1.0 if node.parent < 0 else nodes[node.parent].chance for node in nodes)
    return [min(1.0, node.chance / above) if above else 0.0 for node, above in zip(nodes, before, strict=True)]


def tested_nodes(nodes: list[Node], path: Iterable[int]) -> Iterator[tuple[Node, bool]]:
    """Nodes that a verdict tested, each with whether it was kept: children of kept nodes. path: kept indices."""
    kept = {-1, *path}
    for i, node in enumerate(nodes):
        if node.parent in kept:
            yield node, i in kept
