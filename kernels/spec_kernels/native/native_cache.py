"""Keys and values of one sequence in the native program's format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from spec_kernels.model.kept_rows import AHEAD, KeptRows, MarkedRows, round_up
from spec_kernels.model.shapes import HeadShape
from spec_kernels.native import CACHES, module

AUTO = "auto"
CHOICES = (AUTO, *CACHES)
TILE = 16
ALIGNED = 64
BLOCK = 32
KINDS = (torch.float32, torch.float16)
NOTHING = (0, 0, 0, 0, 0)
"""The cache of a model without attention, as C takes it."""


def choose_cache_type(choice: str, bits: int) -> str:
    """A type in ``CACHES``. choice: one of ``CHOICES``; auto rounds the factors of attention to bytes where activations
    are rounded so, which adds more noise. bits: of activations."""
    return choice if choice != AUTO else "q8" if bits == 8 else "float16"


def place_bytes(kind: str, shape: HeadShape) -> int:
    """Bytes of the keys and values of one position in one layer, without padding. kind: a type in ``CACHES``."""
    if kind == "q8":
        scales = 2 * -(-shape.dim // BLOCK) + (0 if shape.latent else 4)
        return shape.cached_numbers + shape.kv_heads * scales
    return shape.cached_numbers * KINDS[CACHES.index(kind)].itemsize


class CacheShape:
    """Layers of a cache as C takes them.

    kind: an index of ``CACHES``    layers: int32 [L, 4], key heads, head width and latent numbers of each, and whether
    it has a window    heads: the shapes of all layers
    """

    __slots__ = ("arguments", "heads", "kind", "layers")

    def __init__(self, kind: int, heads: Sequence[HeadShape]) -> None:
        self.kind, self.heads = kind, tuple(heads)
        sizes = [(s.kv_heads, s.dim, s.latent, int(s.window > 0)) for s in heads]
        self.layers = torch.tensor(sizes, dtype=torch.int32)
        self.arguments = kind, len(self.layers), self.layers.data_ptr()

    def nbytes(self, places: int, windowed: bool) -> int:
        """Bytes of the layers with a window, or of the others, for some positions."""
        return int(module().cache_bytes(self.arguments, places, windowed))


class Piece:
    """The layers with a window, or the others, in one piece of memory. places: a multiple of TILE."""

    __slots__ = ("address", "memory", "places")

    def __init__(self, shape: CacheShape, places: int, windowed: bool) -> None:
        self.places = places
        # Zero pages of the system: unwritten rows take no memory, and can be copied.
        size = shape.nbytes(places, windowed)
        whole = np.zeros(size + ALIGNED, dtype=np.uint8)
        skip = -whole.ctypes.data % ALIGNED
        self.memory = torch.from_numpy(whole[skip : skip + size])
        self.address = whole.ctypes.data + skip


class NativeCache(KeptRows):
    """Attention rows of all layers for one slot.

    length: places, a multiple of TILE
    """

    def __init__(self, shape: CacheShape, length: int) -> None:
        super().__init__(one.window for one in shape.heads)
        self.shape = shape
        self.whole = Piece(shape, -(-length // TILE) * TILE, False)
        self.length = self.whole.places
        self.latest = Piece(shape, round_up(min(length, self.window + AHEAD)) if self.window else 0, True)
        self.recent = self.latest.places

    @property
    def arguments(self) -> tuple[int, int, int, int, int]:
        """The cache as C takes it."""
        if not self.window:
            return self.whole.address, self.length, 0, self.length, 0
        return self.whole.address, self.length, self.latest.address, self.recent, self.first

    @property
    def nbytes(self) -> int:
        marked = 0 if self.marked is None else self.marked.memory.memory.nbytes
        return self.whole.memory.nbytes + self.latest.memory.nbytes + int(marked)

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions; contents are kept."""
        old = self.whole
        self.whole = Piece(self.shape, -(-length // TILE) * TILE, False)
        self.length = self.whole.places
        self._copy_rows(False, (old, 0), (self.whole, 0), 0, old.places)

    def copy(self) -> NativeCache:
        """Copy the rows to memory of their own."""
        copy = NativeCache(self.shape, self.length)
        copy.latest = Piece(self.shape, self.recent, True)
        copy.first, copy.recent, copy.marked = self.first, self.recent, self.marked
        copy.whole.memory.copy_(self.whole.memory)
        copy.latest.memory.copy_(self.latest.memory)
        return copy

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        module().cache_compact(self.shape.arguments, self.arguments, start, places)

    def _move(self, first: int, recent: int) -> None:
        old, before, end = self.latest, self.first, self.first + self.recent
        if recent != self.recent:
            self.latest = Piece(self.shape, recent, True)
        self.first, self.recent = first, recent
        if self.latest is not old or first != before:
            self._copy_rows(True, (old, before), (self.latest, first), first, end)

    def _copy_out(self, first: int, end: int) -> Piece:
        piece = Piece(self.shape, round_up(end - first), True)
        self._copy_rows(True, (self.latest, self.first), (piece, first), first, end)
        return piece

    def _copy_in(self, marked: MarkedRows) -> None:
        ends = (marked.memory, marked.first), (self.latest, self.first)
        self._copy_rows(True, *ends, marked.first, marked.end)

    def _copy_rows(
        self, windowed: bool, source: tuple[Piece, int], target: tuple[Piece, int], first: int, end: int
    ) -> None:
        """Copy positions of the layers with a window, or of the others. source, target: memory and first position."""
        places = [(piece.address, piece.places, start) for piece, start in (source, target)]
        module().cache_copy(self.shape.arguments, windowed, *places, first, end)

    @property
    def layers(self) -> int:
        return len(self.shape.layers)

    def read(self, layer: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys [K, count - start, D] and values [K, count - start, Dv], float32, of positions start to count - 1.

        They are copies, whatever their form, of the tiles that hold these positions. Raises ValueError for rows that
        are not kept.
        """
        heads, dim, latent, windowed = self.shape.layers[layer].tolist()
        if windowed:
            self.check_read(start)
            start, count = start - self.first, count - self.first
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
        windowed = self.shape.heads[layer].window > 0
        piece = self.latest if windowed else self.whole
        before = [shape for shape in self.shape.heads[:layer] if (shape.window > 0) == windowed]
        sizes = [
            CacheShape(self.shape.kind, some).nbytes(piece.places, windowed)
            for some in (before, [self.shape.heads[layer]])
        ]
        heads, dim, _, _ = self.shape.layers[layer].tolist()
        keys = sizes[0] + heads * aligned_bytes(piece.places // TILE * key_tile_bytes(self.shape.kind, dim))
        return piece.memory[sizes[0] : keys], piece.memory[keys : sum(sizes)]


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
