"""Keys and values of one sequence in the native program's format."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spec_kernels.native import CACHES, module

AUTO = "auto"
CHOICES = (AUTO, *CACHES)
TILE = 16
ALIGNED = 64
KINDS = (torch.float32, torch.float16)


def choose(wish: str, bits: int) -> str:
    """A type in ``CACHES``. wish: one of ``CHOICES``; auto rounds the factors of attention to bytes where activations
    are rounded so, which adds more noise. bits: of activations."""
    return wish if wish != AUTO else "q8" if bits == 8 else "float16"


def place_bytes(kind: str, heads: int, dim: int) -> int:
    """Bytes of the keys and values of one position in one layer, without padding. kind: a type in ``CACHES``."""
    if kind == "q8":
        return heads * (2 * dim + 2 * -(-dim // 32) + 4)
    return heads * 2 * dim * KINDS[CACHES.index(kind)].itemsize


class NativeCache:
    """Attention rows of all layers for one slot, in one piece of memory.

    shape: (kind, layers, K, D), kind an index of ``CACHES``    length: places, a multiple of TILE
    """

    __slots__ = ("address", "length", "memory", "shape")

    def __init__(self, shape: tuple[int, int, int, int], length: int) -> None:
        self.shape = shape
        self._take(length)

    def _take(self, length: int) -> None:
        self.length = -(-length // TILE) * TILE
        # Zero pages of the system: unwritten rows take no memory, and can be copied.
        size = module().cache_bytes(self.shape, self.length)
        whole = np.zeros(size + ALIGNED, dtype=np.uint8)
        skip = -whole.ctypes.data % ALIGNED
        self.memory = torch.from_numpy(whole[skip : skip + size])
        self.address = self.memory.data_ptr()

    def reserve(self, length: int) -> bool:
        """Enlarge to at least ``length`` positions; whether it was. It is doubled, so that few steps allocate."""
        if length <= self.length:
            return False
        self.grow(max(length, 2 * self.length))
        return True

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions; contents are kept."""
        old, address, places = self.memory, self.address, self.length
        self._take(length)
        module().cache_grow(self.shape, address, places, self.address, self.length)
        del old

    def copy(self) -> NativeCache:
        """Copy the rows to memory of their own."""
        copy = NativeCache(self.shape, self.length)
        copy.memory.copy_(self.memory)
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        module().cache_compact(self.shape, self.address, self.length, start, places)

    def read(self, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values float32 [L, K, count, D] of the first positions; not for a cache in blocks."""
        kind, layers, heads, dim = self.shape
        keys = self.length * dim * KINDS[kind].itemsize
        per_head = self.memory.view(layers, -1)
        both = per_head[:, : heads * keys], per_head[:, heads * keys :]
        tiles = both[0].reshape(-1).view(KINDS[kind]).view(layers, heads, -1, dim, TILE)
        values = both[1].reshape(-1).view(KINDS[kind]).view(layers, heads, self.length, -1)
        return tiles.transpose(3, 4).flatten(2, 3)[:, :, :count].float(), values[:, :, :count, :dim].float()
