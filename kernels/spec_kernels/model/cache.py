"""Keys and values of one sequence, allocated once: the reference's cache."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.model.shapes import HeadShape


class KVCache:
    """Attention rows of all layers for one slot: keys and values [L, K, T, D], zeros until written."""

    def __init__(
        self,
        layers: int,
        shape: HeadShape,
        length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = shape
        self.keys, self.values = _zeros((layers, shape.kv_heads, length, shape.dim), dtype, torch.device(device))

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.keys.shape[2]

    def read(self, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values [L, K, count, D] of the first positions."""
        return self.keys[:, :, :count], self.values[:, :, :count]

    def reserve(self, length: int) -> bool:
        """Enlarge to at least ``length`` positions; whether it was. It is doubled, so that few steps allocate."""
        if length <= self.length:
            return False
        self.grow(max(length, 2 * self.length))
        return True

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions; contents are kept."""
        layers, heads, old, dim = self.keys.shape
        keys, values = _zeros((layers, heads, length, dim), self.keys.dtype, self.keys.device)
        keys[:, :, :old], values[:, :, :old] = self.keys, self.values
        self.keys, self.values = keys, values

    def copy(self) -> KVCache:
        """Copy the rows to memory of their own."""
        layers, _, length, _ = self.keys.shape
        copy = KVCache(layers, self.shape, length, self.keys.dtype, self.keys.device)
        copy.keys.copy_(self.keys)
        copy.values.copy_(self.values)
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        index = torch.tensor(places, device=self.keys.device)
        end = start + len(places)
        for m in (self.keys, self.values):
            m[:, :, start:end] = m.index_select(2, index)


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Keys and values. Rollbacks also write there, outside of a forward."""
    with torch.inference_mode(False):
        return torch.zeros(size, dtype=dtype, device=device), torch.zeros(size, dtype=dtype, device=device)
