"""The most likely successors of each token, from the last row that the target computed after it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter

import attrs

Row = list[tuple[int, float]]
"""(token, probability), most likely first."""


@attrs.define(eq=False)
class Table:
    """The adjacency matrix: for every token at most ``k`` successors; none for a token that was never verified.

    fresh: weight of a new row against the stored one; 1 keeps the new row only.
    """

    k: int
    fresh: float
    rows: dict[int, Row] = attrs.field(factory=dict)

    def learn(self, token: int, successors: Iterable[tuple[int, float]]) -> None:
        """Blend one verified row into the token's own."""
        blend = {t: (1 - self.fresh) * p for t, p in self.rows.get(token, ())}
        for t, p in successors:
            blend[t] = blend.get(t, 0.0) + self.fresh * p
        self.rows[token] = sorted(blend.items(), key=itemgetter(1), reverse=True)[: self.k]

    def read(self, tokens: list[int]) -> None:
        """Learn from a text what followed each token; a row given as an embedding (-1) is skipped."""
        for token, following in pairwise(tokens):
            if token >= 0 and following >= 0:
                self.learn(token, [(following, 1.0)])
