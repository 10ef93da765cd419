"""One sequence's rows in a forward: where their keys go, and what they see."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.heads import COLUMNS, HeadScratch

CHUNK = 256
"""Cached rows that are summed in one product. BLAS splits longer sums by their length; a fixed split makes a row's
result independent of how many hidden rows stand behind it."""
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
        self.columns = min(-(-self.end // COLUMNS) * COLUMNS, cache.length)


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
    """The views by which n rows of a stretch attend, from its row ``begin`` on; made once per forward."""

    __slots__ = ("_chunks", "_ignored", "_keys", "_mask", "_queries", "_scale", "_scores", "_tail")

    def __init__(self, scratch: HeadScratch, stretch: Stretch, begin: int, n: int) -> None:
        columns = stretch.columns
        self._scale, self._ignored = scratch.shape.scale, scratch.ignored
        self._queries = scratch.queries(stretch.first + begin, n)
        self._scores = scratch.scores(self._queries.count, columns)
        self._keys = stretch.cache.keys[..., :columns].unbind(0)  # L of [K, Dk, columns]
        # Below float32 sums in pieces would be rounded in between.
        chunk = CHUNK if self._scores.dtype == torch.float32 else columns
        self._chunks = [
            (self._scores[..., i : i + chunk], stretch.cache.values[:, :, i : min(i + chunk, columns)].unbind(0))
            for i in range(0, columns, chunk)
        ]
        self._mask = _mask(scratch, stretch, begin, n)
        if self._mask is not None:
            tail = self._scores[:, : n * self._queries.group, columns - self._mask.shape[-1] :]
            self._tail = tail.unflatten(1, (n, -1)) if self._mask.dim() > 1 else tail  # [K, n, G, c]

    def attend(self, layer: int) -> None:
        """softmax(q kᵀ · scale + mask) v into the output rows."""
        queries, scores = self._queries, self._scores
        queries.gather()
        torch.baddbmm(self._ignored, queries.query, self._keys[layer], beta=0, alpha=self._scale, out=scores)
        if self._mask is not None:
            self._tail.add_(self._mask)
        torch.softmax(scores, -1, out=scores)
        (weights, values), *others = self._chunks
        torch.bmm(weights, values[layer], out=queries.result)
        for weights, values in others:
            queries.result.baddbmm_(weights, values[layer])
        queries.scatter()


def _mask(scratch: HeadScratch, stretch: Stretch, begin: int, n: int) -> Tensor | None:
    """What is added to the last c columns: [c] for all rows, or [n, 1, c]; None where nothing is hidden."""
    surplus = stretch.columns - stretch.end
    if stretch.mask is not None:
        return F.pad(stretch.mask[begin : begin + n], (0, surplus), value=-torch.inf)[:, None]
    return scratch.hidden[:surplus] if surplus else None


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
