"""Products of rows with a matrix: y = x Wᵀ, in tiles, and in parts of k that depend on the shape of W alone.

W is the left operand of a tile's product: a program holds some outputs of up to ``rows`` rows, so that 1 to 16 rows
cost one pass over W. The parts of k are summed in order by the kernel that reads the result: a row has the same bits
however many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import (
    INTERPRETED,
    exact_precision,
    launch_options,
    prefetch,
    start_next,
    wait_for_previous,
)
from spec_kernels.gpu.rows import FUNCTIONS, Function, activate, naive_combine_rows

FEWEST = 16
"""Rows of the smallest tile."""
ROWS = 128
"""Rows of the largest tile."""
PART = 128
"""Every part of k is a multiple of this, unless there is one part only."""
TILES = 128
"""Outputs in tiles of 64: matrices with more of them than this fill a device without parts of k."""
LINE_BYTES = 128
"""Of the second-level cache."""
EARLY = tl.constexpr(2)
"""Tiles of weights that are read into the cache before the wait for the previous kernel."""


@dataclass(frozen=True)
class Tiling:
    """How a tile is computed; nothing here changes a bit of the result.

    outputs, inputs: of a tile. warps, stages: of a program.
    """

    outputs: int
    inputs: int
    warps: int = 4
    stages: int = 4


def padded_rows(rows: int) -> int:
    """Rows that memory needs so that whole tiles can be read and written."""
    return max(FEWEST, triton.next_power_of_2(max(1, rows))) if rows <= ROWS else triton.cdiv(rows, ROWS) * ROWS


def parts_of(n: int, k: int) -> int:
    """Parts of k of a matrix [n, k]: the order of a sum depends on it."""
    split = 4 if triton.cdiv(n, 64) <= TILES else 1
    while split > 1 and k % (split * PART):
        split //= 2
    return split


def tiling(n: int, k: int, rows: int, wide: bool, gated: bool = False) -> Tiling:
    """The fastest known tiling for a number of rows. wide: float32, whose tiles take twice the memory."""
    if INTERPRETED:
        return Tiling(128, 128)  # few programs
    if k % PART or n % 64:
        return Tiling(16, 32, 4, 2)
    if wide:
        return Tiling(32, 32, 4, 2)
    if gated:
        return Tiling(32, 128, 4, 4 if rows <= 16 else 3) if rows <= 64 else Tiling(64, 64, 4, 3)
    if rows <= 32:
        return Tiling(64, 128, 4, 3)
    return Tiling(64, 64, 4, 4) if rows <= 64 else Tiling(64, 64, 4, 3)


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """out[s] = x Wᵀ over the s-th part of k.

    :param x: [P, k], P as ``padded_rows`` gives it. :param weight: [n, k], of the same type.
    :param out: float32 [parts_of(n, k), P, n].
    """
    (rows, k), (n, _), split = x.shape, weight.shape, len(out)
    how, height = tiling(n, k, rows, x.dtype == torch.float32), min(rows, ROWS)
    exact = n % how.outputs == 0 and k % (split * how.inputs) == 0
    _multiply[triton.cdiv(n, how.outputs), triton.cdiv(rows, height), split](
        x, weight, out, rows, x.stride(0), n, k, triton.cdiv(k, split), exact, exact_precision(x.dtype),
        how.outputs, how.inputs, height, LINE_BYTES // x.itemsize, **launch_options(how.warps, how.stages),
    )  # fmt: skip


def naive_multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """The twin of ``multiply`` in torch."""
    parts = zip(x.float().chunk(len(out), 1), weight.float().chunk(len(out), 1), strict=True)
    for to, (columns, matrix) in zip(out, parts, strict=True):
        to.copy_(columns @ matrix.T)


def multiply_gated(x: Tensor, weight: Tensor, out: Tensor, function: Function) -> None:
    """out = act(x Gᵀ) · x Uᵀ with W = [G | U] row by row.

    :param x: [P, k]. :param weight: [2 F, k]. :param out: [P, F]. :param function: a gated unit of ``rows``.
    """
    (rows, k), (double, _) = x.shape, weight.shape
    n = double // 2
    how, height = tiling(n, k, rows, x.dtype == torch.float32, gated=True), min(rows, ROWS)
    exact = n % how.outputs == 0 and k % how.inputs == 0
    _multiply_gated[triton.cdiv(n, how.outputs), triton.cdiv(rows, height)](
        x, weight, out, x.stride(0), n, k, exact, exact_precision(x.dtype), FUNCTIONS.index(function),
        how.outputs, how.inputs, height, LINE_BYTES // x.itemsize, **launch_options(how.warps, how.stages),
    )  # fmt: skip


def naive_multiply_gated(x: Tensor, weight: Tensor, out: Tensor, function: Function) -> None:
    """The twin of ``multiply_gated`` in torch."""
    gate, up = (x.float() @ weight.float().T).chunk(2, 1)
    naive_combine_rows(function, out, gate, up)


@triton.jit
def _multiply(
    x, weight, out, rows, x_stride, n, k, part, EXACT: tl.constexpr, PRECISION: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, HEIGHT: tl.constexpr, LINE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One part of k of OUTPUTS outputs of HEIGHT rows."""
    start_next(DEPENDENT)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row, column = tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT), tl.arange(0, INPUTS)
    begin = tl.program_id(2) * part
    end = tl.minimum(begin + part, k)
    w_at = weight + output.to(tl.int64)[:, None] * k + (begin + column)[None, :]
    x_at = x + row.to(tl.int64)[None, :] * x_stride + (begin + column)[:, None]
    if EXACT:
        for line in tl.static_range(EARLY * INPUTS // LINE):
            prefetch(weight + output.to(tl.int64) * k + begin + line * LINE, DEPENDENT)
    wait_for_previous(DEPENDENT)
    total = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    for first in range(begin, end, INPUTS):
        if EXACT:
            w, values = tl.load(w_at), tl.load(x_at)
        else:
            inside = first + column < end
            w = tl.load(w_at, (output < n)[:, None] & inside[None, :], other=0.0)
            values = tl.load(x_at, inside[:, None], other=0.0)
        total = tl.dot(w, values, total, input_precision=PRECISION)
        w_at += INPUTS
        x_at += INPUTS
    to = out + (tl.program_id(2) * rows + row).to(tl.int64)[None, :] * n + output[:, None]
    tl.store(to, total, (output < n)[:, None])


@triton.jit
def _multiply_gated(
    x, weight, out, x_stride, n, k, EXACT: tl.constexpr, PRECISION: tl.constexpr, FUNCTION: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, HEIGHT: tl.constexpr, LINE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row, column = tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT), tl.arange(0, INPUTS)
    w_at = weight + output.to(tl.int64)[:, None] * k + column[None, :]
    x_at = x + row.to(tl.int64)[None, :] * x_stride + column[:, None]
    second = n.to(tl.int64) * k
    if EXACT:
        for line in tl.static_range(EARLY * INPUTS // LINE):
            at = weight + output.to(tl.int64) * k + line * LINE
            prefetch(at, DEPENDENT)
            prefetch(at + second, DEPENDENT)
    wait_for_previous(DEPENDENT)
    gate = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    up = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    for first in range(0, k, INPUTS):
        if EXACT:
            g, u, values = tl.load(w_at), tl.load(w_at + second), tl.load(x_at)
        else:
            inside = first + column < k
            real = (output < n)[:, None] & inside[None, :]
            g, u = tl.load(w_at, real, other=0.0), tl.load(w_at + second, real, other=0.0)
            values = tl.load(x_at, inside[:, None], other=0.0)
        gate = tl.dot(g, values, gate, input_precision=PRECISION)
        up = tl.dot(u, values, up, input_precision=PRECISION)
        w_at += INPUTS
        x_at += INPUTS
    value = activate(gate, up, FUNCTION)
    to = out + row.to(tl.int64)[None, :] * n + output[:, None]
    tl.store(to, value.to(out.dtype.element_ty), (output < n)[:, None])
