"""Keys and values of one sequence, allocated once."""

from __future__ import annotations

from itertools import pairwise

import torch

FIRST_BLOCK, LAST_BLOCK = 128, 512
"""Cached rows of the first product of attention with a context, and of all from LAST_BLOCK rows on."""


def blocks(columns: int) -> list[slice]:
    """Which rows of a cache are multiplied together: 128, 128, 256, then 512 at a time.

    Sums over a context are sums of the same pieces in the same order, wherever it ends.
    """
    begins = [0]
    while begins[-1] < columns:
        begins.append(min(max(FIRST_BLOCK, 2 * begins[-1]), begins[-1] + LAST_BLOCK))
    return [slice(a, b) for a, b in pairwise(begins)]


def reach(rows: int) -> int:
    """The end of the block that holds the last of so many rows."""
    return blocks(rows)[-1].stop if rows else 0


class KVCache:
    """Static attention rows of all layers for one slot; at least ``length`` of them, in whole blocks.

    keys: [L, K, Dk, T], so that scores are a product with rows that lie together.
    values: [L, K, T, Dv]. Rows that were never written are zeros.
    """

    __slots__ = ("_written", "keys", "values")

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        key_dim: int,
        value_dim: int,
        length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        length = reach(length)
        self.keys = torch.zeros(layers, kv_heads, key_dim, length, dtype=dtype, device=device)
        self.values = torch.zeros(layers, kv_heads, length, value_dim, dtype=dtype, device=device)
        self._written = 0

    @property
    def length(self) -> int:
        return self.values.shape[2]

    def enter(self, end: int, columns: int) -> None:
        """Rows up to ``end`` will be written; those from there to ``columns`` are zeros from now on.

        They are hidden, that is multiplied by 0, and what a rejected draft or an earlier sequence left there might not
        be finite.
        """
        if end < self._written:
            self.keys[..., end:columns].zero_()
            self.values[:, :, end:columns].zero_()
        if self._written <= columns:
            self._written = end

    def grown(self, length: int) -> KVCache:
        """A longer cache with the same rows."""
        layers, kv_heads, key_dim, old = self.keys.shape
        with torch.inference_mode(False):  # rollbacks write here too, outside of a forward
            made = KVCache(
                layers, kv_heads, key_dim, self.values.shape[3], length, dtype=self.keys.dtype, device=self.keys.device
            )
        made.keys[..., :old] = self.keys
        made.values[:, :, :old] = self.values
        made._written = self._written
        return made

    def compact(self, start: int, rows: list[int]) -> None:
        """Move cache rows ``rows`` (ascending, each at or after its new place) to ``start`` and up."""
        if rows == list(range(start, start + len(rows))):
            return
        index = torch.tensor(rows, device=self.keys.device)
        end = start + len(rows)
        self.keys[..., start:end] = self.keys.index_select(3, index)
        self.values[:, :, start:end] = self.values.index_select(2, index)
