"""Query rows in the shape that batched products want, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from spec_kernels.nn.heads import HeadScratch


class Queries:
    """n rows of a scratch, a tile of rows after the other: ``query`` goes in, ``result`` comes out.

    query: [tiles, K, queries, Dk], times the scale    result: [tiles, K, queries, Dv]    queries: rows · G, rows first
    What fills the last tile is any finite number.
    """

    def __init__(self, scratch: HeadScratch, first: int, n: int) -> None:
        s, at = scratch.shape, slice(first, first + n)
        self.rows = s.tile if scratch.exact else n
        self.tiles, self.count, self._scale = -(-n // self.rows), self.rows * s.group, s.scale
        self.query = scratch.qkv.new_zeros(self.tiles, s.kv_heads, self.count, s.key_dim)
        self.result = scratch.qkv.new_zeros(self.tiles, s.kv_heads, self.count, s.value_dim)
        self._into = self._parts(self.query, n, scratch.q[at].unflatten(1, (s.kv_heads, s.group)))
        self._from = self._parts(self.result, n, scratch.out[at].unflatten(1, (s.kv_heads, s.group, -1)))

    def _parts(self, tiles: Tensor, n: int, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of the same numbers in tiles [tiles, K, queries, X] and in rows [n, K, G, X]: whole tiles, the rest."""
        spread = tiles.unflatten(2, (self.rows, -1)).transpose(1, 2)  # [tiles, rows, K, G, X]
        full, rest = divmod(n, self.rows)
        parts = [(spread[:full], rows[: full * self.rows].unflatten(0, (full, self.rows)))] if full else []
        return [*parts, (spread[-1, :rest], rows[n - rest :])] if rest else parts

    def gather(self) -> None:
        """Fill ``query`` from the rows."""
        for tiles, rows in self._into:
            torch.mul(rows, self._scale, out=tiles)

    def scatter(self) -> None:
        """Bring ``result`` to the output rows."""
        for tiles, rows in self._from:
            rows.copy_(tiles)
