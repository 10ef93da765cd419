"""Drafts that an executor makes in one call: what is asked for, and what it found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class DraftLimits(Protocol):
    """Of one sequence's draft.

    depth: max path length    nodes: max tokens    width: max children of a node, and nodes evaluated at each depth; 1
        is a chain, in which ``nodes`` is ``depth``
    p_min: nothing follows a path that is less likely; in a tree it is left out, but for the first token after a node
    trust: share of drafts that is accepted, 0 to 1; multiplies the chance of every token
    stops: nothing follows such a token
    chooser: a capsule of ``spec_chooser`` (chooser.h), which a tree needs; None takes the most likely token
    """

    @property
    def depth(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def p_min(self) -> float: ...
    @property
    def trust(self) -> float: ...
    @property
    def stops(self) -> Collection[int]: ...
    @property
    def chooser(self) -> Any: ...


@dataclass(frozen=True, eq=False, slots=True)
class Drafted:
    """One draft of n tokens: of a tree the likeliest first. chances: of each, where what it follows is accepted.

    parents: index of the token that each follows, -1 is committed text; None: a chain
    rows: [n, V] logits that the tokens of a chain were chosen from, where they were to be kept
    """

    tokens: list[int]
    parents: list[int] | None
    chances: list[float]
    rows: Tensor | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Drafts:
    """One for every sequence, and what they cost: forwards, and rows of all of them."""

    found: list[Drafted]
    forwards: int
    rows: int
