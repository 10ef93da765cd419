"""One sequence's rows in a forward: where their keys go, and what they see."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.nn.cache import KVCache
from spec_kernels.nn.heads import HeadScratch
from spec_kernels.nn.linear import LEAST_ROWS

CHUNK = 256
"""Cached rows that are summed in one product. BLAS splits longer sums by their length; a fixed split makes a row's
result independent of how many hidden rows stand behind it."""
COLUMNS = 32
"""Cached rows are looked at in multiples of this, the surplus hidden: torch sums shorter rows and computes smaller
products in another order."""
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
        rows, places = slice(stretch.first, stretch.first + stretch.rows), slice(stretch.start, stretch.end)
        self._keys, self._values = scratch.k[rows].permute(1, 2, 0), scratch.v[rows].transpose(0, 1)
        self._key_places = stretch.cache.keys[..., places].unbind(0)
        self._value_places = stretch.cache.values[:, :, places].unbind(0)
        # Hidden rows are multiplied by 0; what an earlier sequence left there might not be finite.
        stretch.cache.clear(stretch.end, stretch.columns)

    def store(self, layer: int) -> None:
        self._key_places[layer].copy_(self._keys)
        self._value_places[layer].copy_(self._values)


class Window:
    """The views by which n rows of a stretch attend, from its row ``begin`` on; made once per forward."""

    def __init__(self, scratch: HeadScratch, stretch: Stretch, begin: int, n: int) -> None:
        s, cache, columns = scratch.shape, stretch.cache, stretch.columns
        at = slice(stretch.first + begin, stretch.first + begin + n)
        self.scale = s.scale
        self.keys = cache.keys[..., :columns].unbind(0)  # L of [K, Dk, columns]
        queries = max(n * s.group, LEAST_ROWS)
        self._lay_queries(scratch, at, queries)
        self._lay_out(scratch, at, queries)
        self.scores = scratch.scores(queries, columns)
        self._lay_mask(stretch, begin, n, s.group)
        # Below float32 sums in pieces would be rounded in between.
        chunk = CHUNK if scratch.qkv.dtype == torch.float32 else columns
        self.chunks = [
            (self.scores[..., i : i + chunk], cache.values[:, :, i : min(i + chunk, columns)].unbind(0))
            for i in range(0, columns, chunk)
        ]
        self.ignored = self.scores.new_zeros(())

    def _lay_queries(self, scratch: HeadScratch, at: slice, queries: int) -> None:
        """``query`` [K, queries, Dk]; it is filled from ``query_source`` where no view of the rows has that shape."""
        s = scratch.shape
        source = scratch.q[at].unflatten(1, (s.kv_heads, s.group)).transpose(0, 1)  # [K, n, G, Dk]
        self.query_source = None
        if source.shape[1] == 1 and s.group > 1 and scratch.qk is scratch.raw:
            self.query = source[:, 0]
            return
        copies = queries // (source.shape[1] * s.group)  # 2 for a query alone, else 1
        self.query_source = source.expand(-1, copies, -1, -1) if copies > 1 else source
        self.query_place = scratch.qkv.new_empty(self.query_source.shape)
        self.query = self.query_place.view(s.kv_heads, queries, s.key_dim)

    def _lay_mask(self, stretch: Stretch, begin: int, n: int, group: int) -> None:
        """``mask`` [n, 1, c] is added to ``tail``, the last c columns of the scores [K, n, G, c]."""
        hidden = stretch.columns - stretch.end
        rows = self.scores.new_empty(n, 0) if stretch.mask is None else stretch.mask[begin : begin + n]
        self.mask = F.pad(rows, (0, hidden), value=-torch.inf)[:, None] if rows.shape[1] + hidden else None
        if self.mask is not None:
            tail = self.scores[:, : n * group, stretch.columns - self.mask.shape[2] :]
            self.tail = tail.unflatten(1, (n, group))

    def _lay_out(self, scratch: HeadScratch, at: slice, queries: int) -> None:
        """``result`` [K, queries, Dv]; it is copied to ``place`` where it is no view of the output rows."""
        s, n = scratch.shape, at.stop - at.start
        self.place = None
        out = scratch.out[at]
        if queries == n * s.group and 1 in (n, s.kv_heads):
            self.result = out.view(s.kv_heads, queries, s.value_dim)
            return
        self.result = out.new_empty(s.kv_heads, queries, s.value_dim)
        self.place = out.unflatten(1, (s.kv_heads, s.group, -1)).permute(1, 0, 2, 3)  # [K, n, G, Dv]
        self.result_source = self.result[:, : n * s.group].unflatten(1, (n, s.group))

    def attend(self, layer: int) -> None:
        """softmax(q kᵀ · scale + mask) v into the output rows."""
        if self.query_source is not None:
            self.query_place.copy_(self.query_source)
        scores = self.scores
        torch.baddbmm(self.ignored, self.query, self.keys[layer], beta=0, alpha=self.scale, out=scores)
        if self.mask is not None:
            self.tail.add_(self.mask)
        torch.softmax(scores, -1, out=scores)
        for i, (weights, values) in enumerate(self.chunks):
            if i:
                self.result.baddbmm_(weights, values[layer])
            else:
                torch.bmm(weights, values[layer], out=self.result)
        if self.place is not None:
            self.place.copy_(self.result_source)


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
