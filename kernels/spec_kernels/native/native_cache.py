"""Keys and values of one sequence in the native program's format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from spec_kernels.model.shapes import HeadShape
from spec_kernels.native import CACHES, module

AUTO = "auto"
CHOICES = (AUTO, *CACHES)
TILE = 16
ALIGNED = 64
BLOCK = 32
KINDS = (torch.float32, torch.float16)


def choose(wish: str, bits: int) -> str:
    """A type in ``CACHES``. wish: one of ``CHOICES``; auto rounds the factors of attention to bytes where activations
    are rounded so, which adds more noise. bits: of activations."""
    return wish if wish != AUTO else "q8" if bits == 8 else "float16"


def place_bytes(kind: str, shape: HeadShape) -> int:
    """Bytes of the keys and values of one position in one layer, without padding. kind: a type in ``CACHES``."""
    if kind == "q8":
        scales = 2 * -(-shape.dim // BLOCK) + (0 if shape.latent else 4)
        return shape.cached_numbers + shape.kv_heads * scales
    return shape.cached_numbers * KINDS[CACHES.index(kind)].itemsize


class CacheShape:
    """Layers of a cache as C takes them.

    kind: an index of ``CACHES``    layers: int32 [L, 3], key heads, head width and latent numbers of each
    """

    __slots__ = ("arguments", "kind", "layers")

    def __init__(self, kind: int, layers: Tensor) -> None:
        self.kind, self.layers = kind, layers
        self.arguments = kind, len(layers), layers.data_ptr()

    @classmethod
    def of(cls, kind: int, shapes: Sequence[HeadShape]) -> CacheShape:
        return cls(kind, torch.tensor([(s.kv_heads, s.dim, s.latent) for s in shapes], dtype=torch.int32))


class NativeCache:
    """Attention rows of all layers for one slot, in one piece of memory.

    length: places, a multiple of TILE
    """

    __slots__ = ("address", "length", "memory", "shape")

    def __init__(self, shape: CacheShape, length: int) -> None:
        self.shape = shape
        self._take(length)

    def _take(self, length: int) -> None:
        self.length = -(-length // TILE) * TILE
        # Zero pages of the system: unwritten rows take no memory, and can be copied.
        size = module().cache_bytes(self.shape.arguments, self.length)
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
        module().cache_grow(self.shape.arguments, address, places, self.address, self.length)
        del old

    def copy(self) -> NativeCache:
        """Copy the rows to memory of their own."""
        copy = NativeCache(self.shape, self.length)
        copy.memory.copy_(self.memory)
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        module().cache_compact(self.shape.arguments, self.address, self.length, start, places)

    @property
    def layers(self) -> int:
        return len(self.shape.layers)

    def read(self, layer: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys [K, count - start, D] and values [K, count - start, Dv], float32, of positions start to count - 1.

        They are copies, whatever their form, of the tiles that hold these positions.
        """
        heads, dim, latent = self.shape.layers[layer].tolist()
        stored, apart = (part.view(heads, -1) for part in self._parts(layer))
        is_bytes, tiles = CACHES[self.shape.kind] == "q8", range(start // TILE, -(-count // TILE))
        rows = slice(start - tiles.start * TILE, count - tiles.start * TILE)
        keys = (byte_keys if is_bytes else self._float_keys)(stored, dim, tiles)[:, rows]
        if latent:
            return keys, keys[..., dim - latent :].clone()
        return keys, (byte_values if is_bytes else self._float_values)(apart, dim, tiles)[:, rows]

    def _float_keys(self, memory: Tensor, dim: int, tiles: range) -> Tensor:
        """Keys float32 [K, T, dim] from tiles of numbers [dim, TILE]."""
        numbers = tiles_of(memory, key_tile_bytes(self.shape.kind, dim), tiles).view(KINDS[self.shape.kind])
        return numbers.unflatten(2, (dim, TILE)).transpose(2, 3).flatten(1, 2).float()

    def _float_values(self, memory: Tensor, dim: int, tiles: range) -> Tensor:
        """Values float32 [K, T, dim] from padded rows of numbers."""
        kind = KINDS[self.shape.kind]
        numbers = tiles_of(memory, TILE * padded_width(dim) * kind.itemsize, tiles).view(kind)
        return numbers.unflatten(2, (TILE, -1)).flatten(1, 2)[..., :dim].float()

    def _parts(self, layer: int) -> tuple[Tensor, Tensor]:
        """The bytes of a layer's keys, and of its values, of all heads."""
        bytes_of = lambda one: module().cache_bytes((self.shape.kind, 1, one.data_ptr()), self.length)
        first = sum(bytes_of(one) for one in self.shape.layers[:layer])
        heads, dim, _ = self.shape.layers[layer].tolist()
        keys = heads * aligned_bytes(self.length // TILE * key_tile_bytes(self.shape.kind, dim))
        return self.memory[first : first + keys], self.memory[first + keys : first + bytes_of(self.shape.layers[layer])]


def padded_width(dim: int) -> int:
    """Numbers of a row of values."""
    return -(-dim // TILE) * TILE


def aligned_bytes(size: int) -> int:
    """Bytes of a head's keys or values."""
    return -(-size // ALIGNED) * ALIGNED


def key_tile_bytes(kind: int, dim: int) -> int:
    """Bytes of TILE keys of one head."""
    if CACHES[kind] == "q8":
        return TILE * (4 * -(-dim // 4) + 2 * -(-dim // BLOCK))
    return TILE * dim * KINDS[kind].itemsize


def tiles_of(memory: Tensor, size: int, tiles: range) -> Tensor:
    """Bytes [K, tiles, size] of some tiles of the heads in ``memory`` [K, bytes]."""
    return memory[:, tiles.start * size : tiles.stop * size].unflatten(1, (len(tiles), size))


def byte_keys(memory: Tensor, dim: int, tiles: range) -> Tensor:
    """Keys float32 [K, T, dim] from tiles of integers + 128 [dim / 4, TILE, 4] and scales float16 [blocks, TILE]."""
    memory = tiles_of(memory, key_tile_bytes(CACHES.index("q8"), dim), tiles)
    quads = -(-dim // 4)
    integers = memory[..., : quads * TILE * 4].unflatten(-1, (quads, TILE, 4)).transpose(2, 3).flatten(3)[..., :dim]
    scales = memory[..., quads * TILE * 4 :].contiguous().view(torch.float16).unflatten(-1, (-1, TILE)).mT.float()
    return ((integers.float() - 128) * scales.repeat_interleave(BLOCK, -1)[..., :dim]).flatten(1, 2)


def byte_values(memory: Tensor, dim: int, tiles: range) -> Tensor:
    """Values float32 [K, T, dim] from tiles of integers [TILE / 4, padded dim, 4] and scales float32 [TILE]."""
    memory = tiles_of(memory, TILE * padded_width(dim) + 4 * TILE, tiles)
    integers = (
        memory[..., : TILE * padded_width(dim)].view(torch.int8).unflatten(-1, (TILE // 4, -1, 4)).transpose(3, 4)
    )
    scales = memory[..., TILE * padded_width(dim) :].contiguous().view(torch.float32)
    return (integers.flatten(2, 3)[..., :dim].float() * scales.unsqueeze(-1)).flatten(1, 2)
