"""Memory of the caches of all sequences: pages of a fixed number of positions, which grows without moving.

A page holds PAGE positions of some layers one after the other, each [2, K, PAGE, D]: keys, then values; where values
are a part of the keys, [1, K, PAGE, D]. Layers with a window have pages apart from the others, since they give theirs
back. A sequence has a line of both page tables, which kernels read. Pages and not slots of a fixed length: a piece of
attention is a page, so paging costs one load per piece, a text takes memory for its own length only, and memory grows
while captured graphs stay valid, since tables hold offsets from the first page.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from spec_kernels.gpu.device import device_lock, upload_numbers
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.model.shapes import HeadShape

LINES = 1024
"""Sequences that a pool has room for."""
CHUNK_BYTES = 256 << 20
"""Memory that a pool takes at once, unless a page is larger."""
PLANE_MAX = 256
"""Max columns of keys or values that a program moves."""


class CacheShape(NamedTuple):
    """The cache of a layer. planes: 2: keys and values; 1: values are a part of the keys. window: rows that the layer
    keeps before the next one, 0: all."""

    kv_heads: int
    dim: int
    planes: int = 2
    window: int = 0

    @staticmethod
    def of(shape: HeadShape) -> CacheShape:
        """The cache of a layer of attention."""
        return CacheShape(shape.kv_heads, shape.dim, 1 if shape.latent else 2, shape.window)

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
class PageGroup:
    """The pages of some layers.

    numbers: of a page; without any, pages take no memory and have no places in the table. table: int64 [LINES, pages of
    a sequence], offsets from the first page of the pool in elements.
    """

    numbers: int
    dtype: torch.dtype
    device: torch.device
    table: Tensor
    chunks: list[Tensor] = field(default_factory=list)
    free: list[Tensor] = field(default_factory=list)

    @property
    def page_bytes(self) -> int:
        return self.numbers * self.dtype.itemsize

    def take(self, count: int) -> list[Tensor]:
        """Free pages, of any content. Raises torch's error if the device's memory is exhausted."""
        with device_lock(self.device):
            missing = count - len(self.free)
            if missing > 0:
                with torch.inference_mode(False):
                    self.grow(missing)
            return [self.free.pop() for _ in range(count)]

    def grow(self, pages: int) -> None:
        """Take memory of the device for some pages or more."""
        count = max(pages, min(CHUNK_BYTES, 16 * self.page_bytes) // max(1, self.page_bytes))
        chunk = torch.zeros(count, self.numbers, dtype=self.dtype, device=self.device)
        self.chunks.append(chunk)
        self.free += reversed(chunk.unbind())

    def give_back(self, pages: list[Tensor]) -> None:
        """Free pages, and empty the list of them."""
        with device_lock(self.device):
            self.free += pages
            pages.clear()


class PageList:
    """Pages of a group, free again once the list is dropped."""

    def __init__(self, group: PageGroup, count: int) -> None:
        self.group, self.pages = group, group.take(count)
        self._dropped = weakref.finalize(self, group.give_back, self.pages)
        self._dropped.atexit = False

    def __len__(self) -> int:
        return len(self.pages)

    @property
    def nbytes(self) -> int:
        return len(self.pages) * self.group.page_bytes

    def extend(self, count: int) -> None:
        """Add pages, of any content, so that there are ``count`` or more."""
        self.pages += self.group.take(max(0, count - len(self.pages)))

    def drop(self, count: int) -> None:
        """Free the first pages."""
        dropped, self.pages[:] = self.pages[:count], self.pages[count:]
        self.group.give_back(dropped)

    def copy(self, first: int = 0, last: int | None = None) -> PageList:
        """Copies of some pages."""
        source = self.pages[first:last]
        copy = PageList(self.group, len(source))
        copy.write(source)
        return copy

    def write(self, source: list[Tensor]) -> None:
        """Copy pages to the first ones."""
        for to, page in zip(self.pages, source, strict=False):
            to.copy_(page)


class Pool:
    """Pages of one shape of caches.

    shapes: of the cache of each layer. positions: max of a sequence. whole, recent: pages of the layers without a
    window, and of those with one. memory: the first page; offsets in tables count elements from it. starts: elements
    from the beginning of a page to each layer. planes: int64 [n, 4], see ``CacheShape.columns``, and whether the layer
    has a window.
    """

    def __init__(
        self, shapes: tuple[CacheShape, ...], positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shapes, self.positions, self.dtype, self.device = shapes, positions, dtype, device
        self.free_lines = list(range(LINES - 1, 0, -1))  # line 0 is of rows that only fill a step
        self.starts, sizes, planes = [], [0, 0], []
        for shape in shapes:
            windowed = int(shape.window > 0)
            planes += [(*plane, windowed) for plane in shape.columns(sizes[windowed])]
            self.starts.append(sizes[windowed])
            sizes[windowed] += shape.numbers
        columns = triton.cdiv(positions, PAGE) + 1
        with torch.inference_mode(False):
            self.tables = torch.zeros(2, LINES, columns, dtype=torch.int64, device=device)
            self.planes = torch.tensor(planes, dtype=torch.int64).to(device)
            self.whole, self.recent = (PageGroup(sizes[i], dtype, device, self.tables[i]) for i in range(2))
            first = self.whole if sizes[0] else self.recent
            first.grow(1)
        self.memory = first.free[-1]

    def group(self, layer: int) -> PageGroup:
        """The pages of a layer."""
        return self.recent if self.shapes[layer].window else self.whole

    def table(self, layer: int) -> Tensor:
        """The page table of a layer, int64 [LINES, pages of a sequence]."""
        return self.group(layer).table

    def layer(self, page: Tensor, layer: int) -> Tensor:
        """Keys and values of one layer in a page, [planes, K, PAGE, D]."""
        shape, start = self.shapes[layer], self.starts[layer]
        return page[start : start + shape.numbers].view(shape.planes, shape.kv_heads, PAGE, shape.dim)

    def take_line(self) -> int:
        """A free line of the tables. Raises TooManySequences."""
        with device_lock(self.device):
            if not self.free_lines:
                raise TooManySequences(f"{LINES - 1} sequences are open, and a pool holds no more; close some")
            return self.free_lines.pop()

    def give_back(self, line: int) -> None:
        """Free the line of a closed sequence."""
        with device_lock(self.device):
            self.free_lines.append(line)

    def write_table(self, line: int, first: int, pages: list[Tensor], group: PageGroup) -> None:
        """Let a line have pages from its page of this number on; positions beyond the table are never evaluated."""
        count = min(len(pages), group.table.shape[1] - first)
        if group.numbers and count > 0:
            offsets = np.array([self.offset(page) for page in pages[:count]], np.int64)
            group.table[line, first : first + count] = upload_numbers(offsets, self.device)

    def offset(self, page: Tensor) -> int:
        """Elements from the first page to this one."""
        return (page.data_ptr() - self.memory.data_ptr()) // self.dtype.itemsize

    def page(self, line: int, place: int, layer: int) -> Tensor:
        """The page of a place of a line, found through the table."""
        offset = int(self.table(layer)[line, place // PAGE])
        return next(
            page for chunk in self.group(layer).chunks for page in chunk.unbind() if self.offset(page) == offset
        )  # for twins and tests

    def write(self, line: int, place: int, layer: int, keys: Tensor, values: Tensor) -> None:
        """Write a row [K, D] of keys and of values: for twins and tests."""
        page = self.layer(self.page(line, place, layer), layer)
        for plane, rows in zip(page, (keys, values), strict=False):
            plane[:, place % PAGE] = rows.to(self.dtype)
