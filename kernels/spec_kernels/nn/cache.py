"""Keys and values of one sequence, allocated once."""

from __future__ import annotations

import torch


class KVCache:
    """Static attention rows of all layers for one slot.

    keys: [L, K, Dk, T], so that scores are a product with rows that lie together.
    values: [L, K, T, Dv].
    """

    __slots__ = ("keys", "values")

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
        self.keys = torch.empty(layers, kv_heads, key_dim, length, dtype=dtype, device=device)
        self.values = torch.empty(layers, kv_heads, length, value_dim, dtype=dtype, device=device)

    @property
    def length(self) -> int:
        return self.values.shape[2]

    def clear(self, start: int, end: int) -> None:
        """Zeros in rows ``start`` to ``end - 1``."""
        if start < end:
            self.keys[..., start:end].zero_()
            self.values[:, :, start:end].zero_()

    def compact(self, start: int, rows: list[int]) -> None:
        """Move cache rows ``rows`` (ascending, each at or after its new place) to ``start`` and up."""
        if rows == list(range(start, start + len(rows))):
            return
        index = torch.tensor(rows, device=self.keys.device)
        end = start + len(rows)
        self.keys[..., start:end] = self.keys.index_select(3, index)
        self.values[:, :, start:end] = self.values.index_select(2, index)
