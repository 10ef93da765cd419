"""Keys and values of one sequence: the reference's cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spec_kernels.model.shapes import HeadShape


class KVCache:
    """Attention rows of all layers for one slot: of each layer keys and values [K, T, D], zeros until written."""

    def __init__(
        self,
        shapes: Sequence[HeadShape],
        length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """shapes: of each layer."""
        self.shapes, self.length, self.dtype, self.device = tuple(shapes), length, dtype, torch.device(device)
        self.keys, self.values = self._zeros(), self._zeros()

    @property
    def layers(self) -> int:
        return len(self.shapes)

    def read(self, layer: int, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values [K, count, D] of a layer's first positions."""
        return self.keys[layer][:, :count], self.values[layer][:, :count]

    def reserve(self, length: int) -> bool:
        """Enlarge to at least ``length`` positions; whether it was. It is doubled, so that few steps allocate."""
        if length <= self.length:
            return False
        self.grow(max(length, 2 * self.length))
        return True

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions; contents are kept."""
        old, self.length = self.length, length
        keys, values = self._zeros(), self._zeros()
        for held, grown in ((self.keys, keys), (self.values, values)):
            for before, after in zip(held, grown, strict=True):
                after[:, :old] = before
        self.keys, self.values = keys, values

    def copy(self) -> KVCache:
        """Copy the rows to memory of their own."""
        copy = KVCache(self.shapes, self.length, self.dtype, self.device)
        for held, copied in ((self.keys, copy.keys), (self.values, copy.values)):
            for source, target in zip(held, copied, strict=True):
                target.copy_(source)
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        index = torch.tensor(places, device=self.device)
        end = start + len(places)
        for m in (*self.keys, *self.values):
            m[:, start:end] = m.index_select(1, index)

    def _zeros(self) -> list[Tensor]:
        """Rows of every layer. Rollbacks also write there, outside of a forward."""
        with torch.inference_mode(False):
            return [
                torch.zeros((s.kv_heads, self.length, s.dim), dtype=self.dtype, device=self.device) for s in self.shapes
            ]
