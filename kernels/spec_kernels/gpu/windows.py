"""Windows of depthwise causal convolutions, see ``ops.causal_conv``: every row walks up to its own ancestors."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.ops.device_function import device_function
from spec_kernels.ops.lineage import Lineage

CHANNELS = 512
"""Channels of one program."""


class Links(NamedTuple):
    """int64 [R] each: the row that a row continues, the place its sequence begins with, the place that keeps the state
    after it; -1: none."""

    parents: Tensor
    source: Tensor
    keep: Tensor


def keep_windows(x: Tensor, windows: Tensor, place_size: int, links: Links, spans: Tensor) -> None:
    """Write the windows after kept rows; a window that a sequence began with is written last.

    x: [R, C], rows may lie apart. windows: [*, W - 1, C], from place 0 on. place_size: numbers from one
    place to the next. spans: int64 [B, 2], the first kept row of each sequence, and one after its last row
    """
    width, channels = windows.shape[1:]
    _keep_windows[len(spans), triton.cdiv(channels, CHANNELS)](
        x, windows, *links, spans, x.stride(0), channels, width + 1, CHANNELS, place_size
    )


def kept_spans(lineage: Lineage) -> list[tuple[int, int]]:
    """First kept row of each sequence, and one after its last row."""
    first_kept = lambda first, end: next((row for row in range(first, end) if lineage.keep[row] >= 0), end)
    return [(first_kept(first, end), end) for first, end in lineage.ends()]


@device_function
def convolve(
    x, weight, windows, parents, source, row, exists, at, real, x_row,
    C: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PLACE: tl.constexpr,
):  # fmt: skip
    """[ROWS, BLOCK]: the convolution at some rows and channels."""
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    window = windows + tl.load(source + row, exists, other=0)[:, None] * PLACE + at[None, :]
    # From the current input back: rows as long as there is a parent, then the window from its end.
    seen, left = tl.where(exists, row, -1), tl.full([ROWS], W - 2, tl.int64)
    for back in tl.static_range(W):
        inside = seen >= 0
        ours, stored = inside[:, None] & real[None, :], (exists & (seen < 0))[:, None] & real[None, :]
        value = tl.load(x + (seen * x_row)[:, None] + at[None, :], ours, other=0.0)
        value += tl.load(window + (left * C)[:, None], stored, other=0.0)
        total += value * tl.load(weight + (W - 1 - back) * C + at, real, other=0.0)[None, :]
        left -= tl.where(inside, 0, 1)
        seen = tl.load(parents + seen, inside, other=-1)
    return total


def replay_windows(record: Tensor, windows: Tensor, offset: int, layer_size: int, path: Tensor) -> None:
    """Advance the windows of all layers in a place along recorded inputs.

    record: [L, n, C]. windows: [1, W - 1, C], of the first layer of place 0. offset: numbers from there to the place.
    path: int64 [m]
    """
    width, channels = windows.shape[1:]
    _replay_windows[triton.cdiv(channels, CHANNELS), len(record)](
        windows, record, path, offset, len(path), layer_size, record.stride(0), record.stride(1),
        channels, width + 1, CHANNELS,
    )  # fmt: skip


@triton.jit
def _replay_windows(
    windows, x, path, offset, count, layer_size, record_layer, record_row,
    C: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    layer, channel = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    window = windows + tl.cast(offset, tl.int64) + layer * layer_size + channel
    advance_window(window, x + layer * record_layer + channel, path, count, record_row, channel < C, C, W)


@device_function
def advance_window(window, x, path, count, x_row, real, C: tl.constexpr, W: tl.constexpr):
    """Advance a window along some rows of inputs. Oldest inputs are written first: each is made from a later one."""
    for j in tl.static_range(W - 1):
        place = count + j
        stored = tl.load(window + place * C, real & (place < W - 1), other=0.0)
        row = tl.load(path + place - W + 1, place >= W - 1, other=0)
        added = tl.load(x + row * x_row, real & (place >= W - 1), other=0.0)
        tl.debug_barrier()
        tl.store(window + j * C, stored + added, real)


@triton.jit
def _keep_windows(
    x, windows, parents, source, keep, spans, x_row,
    C: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, PLACE: tl.constexpr,
):  # fmt: skip
    """The windows of one sequence. Oldest inputs are written first: a window may be made from itself."""
    first, end = tl.load(spans + tl.program_id(0) * 2), tl.load(spans + tl.program_id(0) * 2 + 1)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    count = end - first
    for i in range(2 * count):
        row = first + i % count
        begin, place = tl.load(source + row), tl.load(keep + row)
        if (place != -1) & ((place == begin) == (i >= count)):
            for j in tl.static_range(W - 1):
                seen, left = row, W - 2
                for _ in tl.static_range(W - 2 - j):
                    left -= tl.where(seen >= 0, 0, 1)
                    seen = tl.load(parents + seen, seen >= 0, other=-1)
                value = tl.load(x + seen * x_row + at, (at < C) & (seen >= 0), other=0.0)
                value += tl.load(windows + begin * PLACE + left * C + at, (at < C) & (seen < 0), other=0.0)
                tl.debug_barrier()
                tl.store(windows + place * PLACE + j * C + at, value, at < C)
