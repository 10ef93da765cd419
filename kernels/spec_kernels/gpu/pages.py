"""Keys and values of all sequences: pages of a fixed number of positions, in memory that grows without moving.

A page holds PAGE positions of all layers one after the other, each [2, K, PAGE, D]: keys, then values; where values
are a part of the keys, [1, K, PAGE, D]. A sequence has a line of the page table, which kernels read. Pages and not
slots of a fixed length: a piece of attention is a page, so paging costs one load per piece, a text takes memory for its
own length only, and memory grows while captured graphs stay valid, since the table holds offsets from the first page.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.device import device_lock, upload_numbers
from spec_kernels.gpu.launch import launch_options, on_device, start_next, wait_for_previous
from spec_kernels.gpu.layout import PAGE
from spec_kernels.model.shapes import HeadShape

LINES = 1024
"""Sequences that a pool has room for."""
CHUNK_BYTES = 256 << 20
"""Memory that a pool takes at once, unless a page is larger."""
MOVED_MAX = 64
"""Rows that are moved in one launch."""


PLANE_MAX = 256
"""Max columns of keys or values that a program moves."""


class CacheShape(NamedTuple):
    """The cache of a layer. planes: 2: keys and values; 1: values are a part of the keys."""

    kv_heads: int
    dim: int
    planes: int = 2

    @staticmethod
    def of(shape: HeadShape) -> CacheShape:
        """The cache of a layer of attention."""
        return CacheShape(shape.kv_heads, shape.dim, 1 if shape.latent else 2)

    @property
    def numbers(self) -> int:
        """Numbers of a page."""
        return self.planes * self.kv_heads * PAGE * self.dim

    def columns(self, start: int) -> Iterator[tuple[int, int, int]]:
        """Of up to PLANE_MAX columns of keys or values of one head: the first element, the width, and the distance of
        rows. start: the first element of the layer."""
        for plane in range(self.planes * self.kv_heads):
            for first in range(0, self.dim, PLANE_MAX):
                yield start + plane * PAGE * self.dim + first, min(PLANE_MAX, self.dim - first), self.dim


class TooManySequences(RuntimeError):
    """The page table has no free line."""


@dataclass(eq=False)
class Pool:
    """Pages of one shape of caches.

    shapes: of the cache of each layer. positions: max of a sequence.
    memory: the first page; offsets in ``tables`` count elements from it. tables: int64 [LINES, pages of a sequence].
    starts: elements from the beginning of a page to each layer, and to its end. planes: int64 [n, 3], see
    ``CacheShape.columns``.
    """

    shapes: tuple[CacheShape, ...]
    positions: int
    dtype: torch.dtype
    device: torch.device
    chunks: list[Tensor] = field(default_factory=list)
    free_pages: list[Tensor] = field(default_factory=list)
    free_lines: list[int] = field(default_factory=lambda: list(range(LINES - 1, 0, -1)))
    """Line 0 is of rows that only fill a step."""

    def __post_init__(self) -> None:
        self.starts = [0, *accumulate(shape.numbers for shape in self.shapes)]
        planes = [
            plane for start, shape in zip(self.starts, self.shapes, strict=False) for plane in shape.columns(start)
        ]
        columns = triton.cdiv(self.positions, PAGE) + 1
        with torch.inference_mode(False):
            self.tables = torch.zeros(LINES, columns, dtype=torch.int64, device=self.device)
            self.planes = torch.tensor(planes, dtype=torch.int64).to(self.device)
            self._grow(1)
        self.memory = self.free_pages[-1]

    @property
    def page_bytes(self) -> int:
        return self.starts[-1] * self.dtype.itemsize

    def layer(self, page: Tensor, layer: int) -> Tensor:
        """Keys and values of one layer in a page, [planes, K, PAGE, D]."""
        kv_heads, dim, planes = self.shapes[layer]
        return page[self.starts[layer] : self.starts[layer + 1]].view(planes, kv_heads, PAGE, dim)

    def open(self, positions: int) -> PagedCache:
        """Memory of a sequence. Raises TooManySequences, or torch's error if the device's memory is exhausted."""
        with device_lock(self.device):
            if not self.free_lines:
                raise TooManySequences(f"{LINES - 1} sequences are open, and a pool holds no more; close some")
            line = self.free_lines.pop()
        return PagedCache(self, line, positions)

    def take(self, count: int) -> list[Tensor]:
        """Free pages, of any content."""
        with device_lock(self.device):
            missing = count - len(self.free_pages)
            if missing > 0:
                with torch.inference_mode(False):
                    self._grow(missing)
            return [self.free_pages.pop() for _ in range(count)]

    def _grow(self, pages: int) -> None:
        count = max(pages, min(CHUNK_BYTES, 16 * self.page_bytes) // self.page_bytes)
        chunk = torch.zeros(count, self.starts[-1], dtype=self.dtype, device=self.device)
        self.chunks.append(chunk)
        self.free_pages += reversed(chunk.unbind())

    def offset(self, page: Tensor) -> int:
        """Elements from the first page to this one."""
        return (page.data_ptr() - self.memory.data_ptr()) // self.dtype.itemsize

    def give_back(self, line: int, pages: list[Tensor]) -> None:
        """Free the memory of a closed sequence."""
        with device_lock(self.device):
            self.free_lines.append(line)
            self.free_pages += pages

    def page(self, line: int, place: int) -> Tensor:
        """The page of a place of a line, found through the table."""
        offset = int(self.tables[line, place // PAGE])
        return next(
            page for chunk in self.chunks for page in chunk.unbind() if self.offset(page) == offset
        )  # for twins and tests

    def write(self, line: int, place: int, layer: int, keys: Tensor, values: Tensor) -> None:
        """Write a row [K, D] of keys and of values: for twins and tests."""
        page = self.layer(self.page(line, place), layer)
        for plane, rows in zip(page, (keys, values), strict=False):
            plane[:, place % PAGE] = rows.to(self.dtype)


class PagedCache:
    """Attention rows of all layers of one sequence. length: positions that it has memory for."""

    def __init__(self, pool: Pool, line: int, positions: int) -> None:
        self.pool, self.line = pool, line
        self.pages: list[Tensor] = []
        self._closed = weakref.finalize(self, pool.give_back, line, self.pages)
        self._closed.atexit = False
        self.grow(positions)

    @property
    def length(self) -> int:
        return len(self.pages) * PAGE

    def reserve(self, positions: int) -> bool:
        """Enlarge to at least ``positions``; whether memory was taken. Contents are kept."""
        if positions <= self.length:
            return False
        self.grow(positions)
        return True

    def grow(self, positions: int) -> None:
        """Enlarge to ``positions`` or more; contents are kept."""
        if positions > self.pool.positions:
            raise ValueError(f"a sequence of {positions} positions, {self.pool.positions} is the max")
        first = len(self.pages)
        self.pages += self.pool.take(max(0, triton.cdiv(positions, PAGE) - first))
        offsets = np.array([self.pool.offset(page) for page in self.pages[first:]], np.int64)
        self.pool.tables[self.line, first : len(self.pages)] = upload_numbers(offsets, self.pool.device)

    def copy(self) -> PagedCache:
        """Copy the rows to memory of their own."""
        copy = self.pool.open(self.length)
        for to, page in zip(copy.pages, self.pages, strict=True):
            to.copy_(page)
        return copy

    @property
    def layers(self) -> int:
        return len(self.pool.shapes)

    def read(self, layer: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values [K, count - start, D] of a layer's positions start to count - 1, copied. Without values of
        their own these are the keys."""
        first = start // PAGE
        pages, rows = self.pages[first : triton.cdiv(count, PAGE)], slice(start - first * PAGE, count - first * PAGE)
        both = torch.cat([self.pool.layer(page, layer) for page in pages], 2)[:, :, rows]
        return both[0], both[-1]

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up."""
        device = self.pool.device
        for first in range(0, len(places), MOVED_MAX):
            some = upload_numbers(np.array(places[first : first + MOVED_MAX], np.int32), device)
            with device_lock(device), on_device(device):
                move_rows(self.pool, self.line, some, start + first)

    def naive_compact(self, start: int, places: list[int]) -> None:
        """The twin of ``compact`` in torch."""
        for to, place in enumerate(places, start):
            for layer in range(self.layers):
                source, target = (self.pool.layer(self.pages[at // PAGE], layer) for at in (place, to))
                target[:, :, to % PAGE] = source[:, :, place % PAGE].clone()


def move_rows(pool: Pool, line: int, places: Tensor, start: int) -> None:
    """Move rows of all layers of a sequence. places: int32 [n], n up to MOVED_MAX, as in ``compact``."""
    block = max(2, triton.next_power_of_2(len(places)))
    widest = min(PLANE_MAX, max(shape.dim for shape in pool.shapes))
    _move_rows[len(pool.planes), 1](
        pool.memory, pool.tables, pool.planes, places, line * pool.tables.stride(0), start, len(places),
        triton.next_power_of_2(widest), block, PAGE, **launch_options(4),
    )  # fmt: skip


@triton.jit
def _move_rows(
    pages, tables, planes, places, line_at, start, count, BLOCK: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Some columns of keys or values of one head: all rows are read before any is written."""
    start_next(DEPENDENT)
    plane, row, column = planes + 3 * tl.program_id(0), tl.arange(0, ROWS), tl.arange(0, BLOCK)
    begin, width, stride = tl.load(plane), tl.load(plane + 1), tl.load(plane + 2)
    wait_for_previous(DEPENDENT)
    real = (row < count)[:, None] & (column < width)[None, :]
    place = tl.load(places + row, row < count, other=0)
    base = pages + begin + column[None, :]
    source = tl.load(tables + line_at + place // PAGE, row < count, other=0) + (place % PAGE) * stride
    values = tl.load(base + source[:, None], real, other=0.0)
    to = start + row
    target = tl.load(tables + line_at + to // PAGE, row < count, other=0) + (to % PAGE) * stride
    tl.debug_barrier()
    tl.store(base + target[:, None], values, real)
