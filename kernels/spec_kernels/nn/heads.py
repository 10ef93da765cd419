"""The shape of an attention layer's heads, and the memory one forward needs for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spec_kernels.nn.queries import Queries

QUERIES = 16
"""Query rows of a product of attention, at least."""
KEPT_VIEWS = 64


@dataclass(frozen=True, eq=False)
class HeadShape:
    """H query heads in K groups; share one object between equal layers, so that they share scratch memory.

    scale: what scores are multiplied by.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    scale: float

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def tile(self) -> int:
        """Rows that attend in one product: with their groups at least QUERIES, and a multiple of 4."""
        rows = 1
        while rows * self.group < QUERIES or rows * self.group % 4:
            rows *= 2
        return rows

    @property
    def qk_width(self) -> int:
        return (self.heads + self.kv_heads) * self.key_dim

    @property
    def width(self) -> int:
        """Outputs of the fused projection: q, k, v."""
        return self.qk_width + self.kv_heads * self.value_dim


class HeadScratch:
    """Buffers of R rows, and the views of them that every layer uses again.

    qkv: [R, width] of the fused projection    qk: float32 [R, H + K, Dk], q heads first
    turning: complex64 [R, H + K, Dk / 2], the same memory as qk
    q: [R, H, Dk]    k: [R, K, Dk]    v: [R, K, Dv]    out: [R, H · Dv]
    exact: whether attention is computed in products of fixed sizes: in float32 on a CPU. Below float32, sums in pieces
        would be rounded in between.
    """

    def __init__(self, shape: HeadShape, rows: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.rows = shape, rows
        self.qkv = torch.empty(rows, shape.width, dtype=dtype, device=device)
        # Rows that pad a batch are read by the next product but computed by nobody.
        self.out = torch.zeros(rows, shape.heads * shape.value_dim, dtype=dtype, device=device)
        raw, values = self.qkv.split([shape.qk_width, shape.kv_heads * shape.value_dim], dim=1)
        self.raw = raw.unflatten(1, (-1, shape.key_dim))
        self.qk = self.raw if dtype == torch.float32 else torch.empty_like(self.raw, dtype=torch.float32)
        self.turning = torch.view_as_complex(self.qk.unflatten(2, (-1, 2)))
        self.q, self.k = self.qk.split([shape.heads, shape.kv_heads], dim=1)
        self.v = values.unflatten(1, (-1, shape.value_dim))
        self.exact = dtype == torch.float32 and self.qkv.device.type == "cpu"
        self._memory = torch.empty(0, dtype=dtype, device=device)
        self._queries: dict[tuple[int, int], Queries] = {}
        self._incoming: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def widen(self) -> None:
        """Bring q and k to float32, where the projection is not."""
        if self.qk is not self.raw:
            self.qk.copy_(self.raw)

    def scores(self, tiles: int, queries: int, columns: int) -> Tensor:
        """A buffer [tiles, K, queries, columns]; grows by doubling, so that a growing context seldom allocates."""
        need = tiles * self.shape.kv_heads * queries * columns
        if self._memory.numel() < need:
            self._memory = self._memory.new_empty(2 * need)
        return self._memory[:need].view(tiles, self.shape.kv_heads, queries, columns)

    def queries(self, first: int, n: int) -> Queries:
        """The query views of n rows; kept, for a sequence that decodes alone asks for the same ones again."""
        if (first, n) not in self._queries:
            _make_room(self._queries)
            self._queries[first, n] = Queries(self, first, n)
        return self._queries[first, n]

    def incoming(self, first: int, n: int) -> tuple[Tensor, Tensor]:
        """Keys [K, Dk, n] and values [K, n, Dv] of n rows, in the layout of the cache."""
        if (first, n) not in self._incoming:
            _make_room(self._incoming)
            rows = slice(first, first + n)
            self._incoming[first, n] = self.k[rows].permute(1, 2, 0), self.v[rows].transpose(0, 1)
        return self._incoming[first, n]


def _make_room(views: dict) -> None:
    if len(views) >= KEPT_VIEWS:
        views.clear()
