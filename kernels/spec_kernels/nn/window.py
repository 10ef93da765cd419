"""One sequence's rows in a forward: where their keys go, and what they see."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.nn.cache import KVCache, blocks, reach
from spec_kernels.nn.heads import HeadScratch

MOST_QUERIES = 64
"""Rows of a stretch that attend at once, so that the scores of a long prompt need no more memory than these."""


class Stretch:
    """n rows of a batch that enter a cache together.

    first: their first row in the batch    start: their first row in the cache
    mask: float32 [n, c], 0 or -inf, for the last c cache rows; None where all rows see everything up to themselves
        and n is 1. Rows before those c are seen by all.
    """

    __slots__ = ("cache", "columns", "end", "first", "mask", "rows", "start")

    def __init__(self, cache: KVCache, first: int, rows: int, start: int, mask: Tensor | None) -> None:
        self.cache, self.first, self.rows, self.start, self.mask = cache, first, rows, start, mask
        self.end = start + rows
        self.columns = reach(self.end)


class Entry:
    """The views by which a stretch's keys and values enter the cache, made once per forward for all layers."""

    __slots__ = ("_key_places", "_keys", "_value_places", "_values")

    def __init__(self, scratch: HeadScratch, stretch: Stretch) -> None:
        self._keys, self._values = scratch.incoming(stretch.first, stretch.rows)
        self._key_places = stretch.cache.keys[..., stretch.start : stretch.end].unbind(0)
        self._value_places = stretch.cache.values[:, :, stretch.start : stretch.end].unbind(0)
        stretch.cache.enter(stretch.end, stretch.columns)

    def store(self, layer: int) -> None:
        self._key_places[layer].copy_(self._keys)
        self._value_places[layer].copy_(self._values)


class Window:
    """The views by which n rows of a stretch attend, from its row ``begin`` on; made once per forward.

    On a CPU every product has one shape: a tile of rows, and a block of the cache whose size depends on its place.
    """

    __slots__ = ("_blocks", "_mask", "_part", "_queries", "_scores", "_tail")

    def __init__(self, scratch: HeadScratch, stretch: Stretch, begin: int, n: int) -> None:
        columns = stretch.columns
        self._queries = queries = scratch.queries(stretch.first + begin, n)
        self._scores = scratch.scores(queries.tiles, queries.count, columns)
        self._part = torch.empty_like(queries.result[0])
        pieces = blocks(columns) if scratch.exact else [slice(0, columns)]
        # per block: scores [tiles, K, queries, c], keys L of [K, Dk, c], values L of [K, c, Dv]
        self._blocks = [
            (
                self._scores[..., at].unbind(0),
                stretch.cache.keys[..., at].unbind(0),
                stretch.cache.values[:, :, at].unbind(0),
            )
            for at in pieces
        ]
        self._mask = _mask(stretch, begin, n, queries.tiles * queries.rows)
        if self._mask is not None:
            self._mask = self._mask.unflatten(0, (queries.tiles, 1, queries.rows, 1)).to(self._scores.dtype)
            spread = self._scores.unflatten(2, (queries.rows, -1))  # [tiles, K, rows, G, columns]
            self._tail = spread[..., columns - self._mask.shape[-1] :]

    def attend(self, layer: int) -> None:
        """softmax(q kᵀ · scale + mask) v into the output rows."""
        self._queries.gather()
        for scores, keys, _ in self._blocks:
            for query, out in zip(self._queries.query, scores, strict=True):
                torch.bmm(query, keys[layer], out=out)
        if self._mask is not None:
            self._tail.add_(self._mask)
        torch.softmax(self._scores, -1, out=self._scores)
        for i, (scores, _, values) in enumerate(self._blocks):
            for weights, result in zip(scores, self._queries.result, strict=True):
                torch.bmm(weights, values[layer], out=self._part if i else result)
                if i:
                    result.add_(self._part)
        self._queries.scatter()


def _mask(stretch: Stretch, begin: int, n: int, rows: int) -> Tensor | None:
    """float32 [rows, c], added to the last c columns, or None. Rows from n on are nobody's and see everything."""
    surplus = stretch.columns - stretch.end
    if stretch.mask is not None:
        seen = F.pad(stretch.mask[begin : begin + n], (0, surplus), value=-torch.inf)
    elif surplus:
        seen = stretch.cache.keys.new_full((n, surplus), -torch.inf, dtype=torch.float32)
    else:
        return None
    return F.pad(seen, (0, 0, 0, rows - n))


def windows(scratch: HeadScratch, stretch: Stretch) -> list[Window]:
    """The windows of a stretch, each of at most MOST_QUERIES rows."""
    return [
        Window(scratch, stretch, begin, min(MOST_QUERIES, stretch.rows - begin))
        for begin in range(0, stretch.rows, MOST_QUERIES)
    ]


def causal(rows: int, device: torch.device | str = "cpu") -> Tensor:
    """float32 [rows, rows]: 0 where a row sees another, -inf where it comes later."""
    return torch.full((rows, rows), -torch.inf, device=device).triu_(1)


def masked(visible: Tensor) -> Tensor:
    """bool [n, c] -> float32 [n, c], 0 or -inf."""
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, -torch.inf)
