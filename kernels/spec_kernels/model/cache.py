"""Keys and values of one sequence, or latents of both: the reference's cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spec_kernels.model.shapes import HeadShape


class KVCache:
    """Attention rows of all layers for one slot: of each layer keys [K, T, D] and values [K, T, Dv], zeros until
    written. Values of latents are a view of the keys.
    """

    def __init__(
        self,
        shapes: Sequence[HeadShape],
        length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """shapes: of each layer."""
        self.shapes, self.length, self.dtype, self.device = tuple(shapes), length, dtype, torch.device(device)
        self._take()

    @property
    def layers(self) -> int:
        return len(self.shapes)

    @property
    def memory(self) -> list[Tensor]:
        """The memory of all layers, each piece once."""
        return [*self.keys, *(v for v, s in zip(self.values, self.shapes, strict=True) if not s.latent)]

    def read(self, layer: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys [K, count - start, D] and values [K, count - start, Dv] of a layer's positions start to count - 1."""
        return self.keys[layer][:, start:count], self.values[layer][:, start:count]

    def reserve(self, length: int) -> bool:
        """Enlarge to at least ``length`` positions; whether it was. It is doubled, so that few steps allocate."""
        if length <= self.length:
            return False
        self.grow(max(length, 2 * self.length))
        return True

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions; contents are kept."""
        old, held, self.length = self.length, self.memory, length
        self._take()
        for before, after in zip(held, self.memory, strict=True):
            after[:, :old] = before

    def copy(self) -> KVCache:
        """Copy the rows to memory of their own."""
        copy = KVCache(self.shapes, self.length, self.dtype, self.device)
        for source, target in zip(self.memory, copy.memory, strict=True):
            target.copy_(source)
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        index = torch.tensor(places, device=self.device)
        end = start + len(places)
        for m in self.memory:
            m[:, start:end] = m.index_select(1, index)

    def _take(self) -> None:
        """Take memory for every layer. Rollbacks also write there, outside of a forward."""
        zeros = lambda s: torch.zeros((s.kv_heads, self.length, s.dim), dtype=self.dtype, device=self.device)
        with torch.inference_mode(False):
            self.keys = [zeros(s) for s in self.shapes]
            apart = zip(self.keys, self.shapes, strict=True)
            self.values = [keys[..., s.dim - s.latent :] if s.latent else zeros(s) for keys, s in apart]
