"""Keys and values of one sequence in pages of a pool.

Layers with a window keep the pages that ``KeptRows`` says: a page is free once all its rows are given back. Rows do not
move: position p is always row p % PAGE of page p // PAGE.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.device import device_lock, upload_numbers
from spec_kernels.gpu.launch import launch_options, on_device, start_next, wait_for_previous
from spec_kernels.gpu.pool import PLANE_MAX, PageList, Pool
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.model.kept_rows import AHEAD, KeptRows, MarkedRows, round_up

MOVED_MAX = 64
"""Rows that are moved in one launch."""


class PagedCache(KeptRows):
    """Attention rows of all layers of one sequence. whole: pages of the layers without a window. latest: pages of those
    with one, from that of position ``first`` on."""

    def __init__(self, pool: Pool, positions: int) -> None:
        """positions: to have memory for. Raises TooManySequences, and torch's error if the device's memory is
        exhausted."""
        super().__init__(shape.window for shape in pool.shapes)
        self.pool, self.line = pool, pool.take_line()
        self._closed = weakref.finalize(self, pool.give_back, self.line)
        self._closed.atexit = False
        self.length, self.whole, self.latest = 0, PageList(pool.whole, 0), PageList(pool.recent, 0)
        self.grow(positions)
        if self.window:
            self._move(0, round_up(min(positions, self.window + AHEAD)))

    @property
    def layers(self) -> int:
        return len(self.pool.shapes)

    @property
    def nbytes(self) -> int:
        marked = 0 if self.marked is None else self.marked.memory.nbytes
        return self.whole.nbytes + self.latest.nbytes + int(marked)

    def grow(self, length: int) -> None:
        """Enlarge to ``length`` positions or more; contents are kept."""
        if length > self.pool.positions:
            raise ValueError(f"a sequence of {length} positions, {self.pool.positions} is the max")
        pages, before = triton.cdiv(length, PAGE), len(self.whole)
        self.whole.extend(pages)
        self.length = pages * PAGE
        self.pool.write_table(self.line, before, self.whole.pages[before:], self.pool.whole)

    def copy(self) -> PagedCache:
        """Copy the rows to memory of their own."""
        pool, copy = self.pool, PagedCache(self.pool, 0)
        copy.length, copy.first, copy.recent, copy.marked = self.length, self.first, self.recent, self.marked
        copy.whole, copy.latest = self.whole.copy(), self.latest.copy()
        pool.write_table(copy.line, 0, copy.whole.pages, pool.whole)
        pool.write_table(copy.line, copy.first // PAGE, copy.latest.pages, pool.recent)
        return copy

    def read(self, layer: int, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values [K, count - start, D] of a layer's positions start to count - 1, copied. Without values of
        their own these are the keys. Raises ValueError for rows that are not kept."""
        pages, before, first = self.whole.pages, 0, start // PAGE
        if self.pool.shapes[layer].window:
            self.check_read(start)
            pages, before = self.latest.pages, self.first // PAGE
        rows = slice(start - first * PAGE, count - first * PAGE)
        chosen = pages[first - before : triton.cdiv(count, PAGE) - before]
        both = torch.cat([self.pool.layer(page, layer) for page in chosen], 2)[:, :, rows]
        return both[0], both[-1]

    def compact(self, start: int, places: list[int]) -> None:
        """Move ``places`` (ascending, each at or after its new place) to ``start`` and up. Raises ValueError for a
        place that is not kept."""
        if start < self.first:
            self.check_read(start)
        device = self.pool.device
        for first in range(0, len(places), MOVED_MAX):
            some = upload_numbers(np.array(places[first : first + MOVED_MAX], np.int32), device)
            with device_lock(device), on_device(device):
                move_rows(self.pool, self.line, some, start + first)

    def naive_compact(self, start: int, places: list[int]) -> None:
        """The twin of ``compact`` in torch."""
        for to, place in enumerate(places, start):
            for layer in range(self.layers):
                ends = (self.pool.page(self.line, at, layer) for at in (place, to))
                source, target = (self.pool.layer(page, layer) for page in ends)
                target[:, :, to % PAGE] = source[:, :, place % PAGE].clone()

    # layers with a window

    def _positions_to_take(self, needed: int, now: int, limit: int = 0) -> int:
        """Pages are taken one by one: memory of a device is not taken in advance."""
        return needed

    def _begin_at(self, first: int) -> None:
        self.latest.extend(page_count(first, self.recent))
        self.first = first
        self._move(first, self.recent)

    def _move(self, first: int, recent: int) -> None:
        before = first // PAGE - self.first // PAGE
        self.latest.extend(before + page_count(first, recent))  # memory may be exhausted: nothing is freed before
        self.latest.drop(before)
        self.first, self.recent = first, recent
        self.pool.write_table(self.line, first // PAGE, self.latest.pages, self.pool.recent)

    def _copy_out(self, first: int, end: int) -> PageList:
        before = self.first // PAGE
        return self.latest.copy(first // PAGE - before, triton.cdiv(end, PAGE) - before)

    def _copy_in(self, marked: MarkedRows) -> None:
        self.latest.write(marked.memory.pages)


def page_count(first: int, count: int) -> int:
    """Pages in which some positions are, from ``first`` on."""
    return triton.cdiv(first + count, PAGE) - first // PAGE


def move_rows(pool: Pool, line: int, places: Tensor, start: int) -> None:
    """Move rows of all layers of a sequence. places: int32 [n], n up to MOVED_MAX, as in ``compact``."""
    block = max(2, triton.next_power_of_2(len(places)))
    widest = min(PLANE_MAX, max(shape.dim for shape in pool.shapes))
    _move_rows[len(pool.planes), 1](
        pool.memory, pool.tables, pool.planes, places, line * pool.tables.stride(1), pool.tables.stride(0), start,
        len(places), triton.next_power_of_2(widest), block, PAGE, **launch_options(4),
    )  # fmt: skip


@triton.jit
def _move_rows(
    pages, tables, planes, places, line_at, table_stride, start, count, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    PAGE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Some columns of keys or values of one head: all rows are read before any is written."""
    start_next(DEPENDENT)
    plane, row, column = planes + 4 * tl.program_id(0), tl.arange(0, ROWS), tl.arange(0, BLOCK)
    begin, width, stride = tl.load(plane), tl.load(plane + 1), tl.load(plane + 2)
    line = tables + tl.load(plane + 3) * table_stride + line_at
    wait_for_previous(DEPENDENT)
    real = (row < count)[:, None] & (column < width)[None, :]
    place = tl.load(places + row, row < count, other=0)
    base = pages + begin + column[None, :]
    source = tl.load(line + place // PAGE, row < count, other=0) + (place % PAGE) * stride
    values = tl.load(base + source[:, None], real, other=0.0)
    to = start + row
    target = tl.load(line + to // PAGE, row < count, other=0) + (to % PAGE) * stride
    tl.debug_barrier()
    tl.store(base + target[:, None], values, real)
