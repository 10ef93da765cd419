"""Products of rows with a matrix: y = x Wᵀ, in tiles, and in parts of k that depend on the shape of W alone.

W is the left operand of a tile's product: a program holds some outputs of up to ``rows`` rows, so that 1 to 16 rows
cost one pass over W. The parts of k are summed in order by the kernel that reads the result: a row has the same bits
however many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.blocks import add_product, prefetch_tiles
from spec_kernels.gpu.launch import exact_precision, launch_options, start_next, wait_for_previous
from spec_kernels.gpu.repack import Matrix, naive_weights
from spec_kernels.gpu.rows import FUNCTIONS, Function, activate, naive_combine_rows
from spec_kernels.ops.device_function import INTERPRETED

FEWEST = 16
"""Rows of the smallest tile."""
ROWS = 128
"""Rows of the largest tile."""
BLOCK_ROWS = 64
"""Rows of the largest tile of matrices in blocks."""
PART = 128
"""Every part of k is a multiple of this, unless there is one part only."""
BLOCK_PART = 512
"""The smallest part of k of a matrix in blocks; every one is a multiple of 256."""
TILES = 128
"""Outputs in tiles of 64: matrices with more of them than this fill a device without parts of k."""
PROGRAMS = {"bytes": 768, "nibbles": 1536}
"""Tiles, times parts, of matrices in blocks that fill a device: unpacking takes many warps on each multiprocessor."""


@dataclass(frozen=True)
class Tiling:
    """Options of computing a tile.

    outputs, inputs: of a tile. warps, stages: of a program. Inputs and warps decide in which order columns of
    blocks are added; for floats nothing changes a bit of the result.
    """

    outputs: int
    inputs: int
    warps: int = 4
    stages: int = 4


def padded_rows(rows: int) -> int:
    """Rows that memory needs so that whole tiles can be read and written."""
    return max(FEWEST, triton.next_power_of_2(max(1, rows))) if rows <= ROWS else triton.cdiv(rows, ROWS) * ROWS


def parts_of(*matrices: Matrix) -> int:
    """Parts of k of matrices one below the other: the order of a sum depends on it."""
    n, k, forms = sum(m.n for m in matrices), matrices[0].k, [m.form for m in matrices]
    tiles, split = triton.cdiv(n, 64), 4 if triton.cdiv(n, 64) <= TILES else 1
    if any(form.blocks for form in forms):
        programs = PROGRAMS["nibbles" if any(form.blocks and form.nibbles for form in forms) else "bytes"]
        split = 16
        while split > 1 and (split * tiles > programs or k < split * BLOCK_PART or k % (split * 256)):
            split //= 2
    while split > 1 and k % (split * PART):
        split //= 2
    return split


def tile_rows(matrix: Matrix, rows: int, gated: bool = False) -> int:
    """Rows of a tile, of ``padded_rows``."""
    return min(rows, (BLOCK_ROWS // 2 if gated else BLOCK_ROWS) if matrix.form.blocks else ROWS)


def tiling(matrix: Matrix, rows: int, gated: bool = False) -> Tiling:
    """The fastest known tiling for a number of rows. gated: two matrices at once, each of ``outputs``."""
    n, k, wide = matrix.n, matrix.k, matrix.dtype == torch.float32  # wide tiles take twice the memory
    if INTERPRETED:
        return Tiling(128, 128)  # few programs
    if matrix.form.blocks:
        return _block_tiling(matrix, rows, gated)
    if k % PART or n % 64:
        return Tiling(16, 32, 4, 2)
    if wide:
        return Tiling(32, 32, 4, 2)
    if rows > 64:  # 128 x 128 results of a program, which compute for as long as they read
        return Tiling(64, 64, 8, 4) if gated else Tiling(128, 64, 8, 4)
    if gated:
        return Tiling(32, 128, 4, 4 if rows <= 16 else 3)
    return Tiling(64, 128, 4, 3) if rows <= 32 else Tiling(64, 64, 4, 4)


def _block_tiling(matrix: Matrix, rows: int, gated: bool) -> Tiling:
    """Tiling of a matrix in blocks, with the same inputs and warps for all rows.

    With four warps triton makes products that unpack half as fast.
    """
    if matrix.dtype == torch.float32:
        return Tiling(32, 64, 2, 2)
    few = triton.cdiv(matrix.n, 64) <= TILES // 2 and not gated
    if not matrix.form.nibbles:
        how = Tiling(32, 256, 1, 3) if few else Tiling(64, 256, 2, 4)
    elif matrix.form.bits:
        how = Tiling(32, 256, 1 if gated else 2, 3)
    else:
        how = Tiling(64 if rows <= 16 or gated else 32, 256, 2, 2 if few else 3)
    how = how if rows <= 32 else replace(how, stages=2)
    return replace(how, outputs=how.outputs // 2) if gated else how


def multiply(x: Tensor, matrix: Matrix, out: Tensor) -> None:
    """out[s] = x Wᵀ over the s-th part of k.

    :param x: [P, k] of the matrix' dtype, P as ``padded_rows`` gives it.
    :param out: float32 [parts_of(...), P, n], columns of the memory of all matrices that x is multiplied with.
    """
    rows, n, k, split = len(x), matrix.n, matrix.k, len(out)
    how, height = tiling(matrix, rows), tile_rows(matrix, rows)
    exact = n % how.outputs == 0 and k % (split * how.inputs) == 0
    _multiply[triton.cdiv(n, how.outputs), triton.cdiv(rows, height), split](
        x, matrix.memory, out, x.stride(0), out.stride(0), out.stride(1), n, k, triton.cdiv(k, split), matrix.form,
        exact, exact_precision(x.dtype), how.outputs, how.inputs, height, **launch_options(how.warps, how.stages),
    )  # fmt: skip


def naive_multiply(x: Tensor, matrix: Matrix, out: Tensor) -> None:
    """The twin of ``multiply`` in torch."""
    weights = naive_weights(matrix).to(matrix.dtype).float()
    parts = zip(x.float().chunk(len(out), 1), weights.chunk(len(out), 1), strict=True)
    for to, (columns, part) in zip(out, parts, strict=True):
        to.copy_(columns @ part.T)


def multiply_gated(x: Tensor, matrix: Matrix, out: Tensor, function: Function) -> None:
    """out = act(x Gᵀ) · x Uᵀ with W = [G | U] row by row.

    :param x: [P, k]. :param matrix: [2 F, k]. :param out: [P, F]. :param function: a gated unit of ``rows``.
    """
    rows, n, k = len(x), matrix.n // 2, matrix.k
    how, height = tiling(matrix, rows, gated=True), tile_rows(matrix, rows, gated=True)
    exact = n % how.outputs == 0 and k % how.inputs == 0
    _multiply_gated[triton.cdiv(n, how.outputs), triton.cdiv(rows, height)](
        x, matrix.memory, out, x.stride(0), n, k, matrix.form, exact, exact_precision(x.dtype),
        FUNCTIONS.index(function), how.outputs, how.inputs, height, **launch_options(how.warps, how.stages),
    )  # fmt: skip


def naive_multiply_gated(x: Tensor, matrix: Matrix, out: Tensor, function: Function) -> None:
    """The twin of ``multiply_gated`` in torch."""
    gate, up = (x.float() @ naive_weights(matrix).to(matrix.dtype).float().T).chunk(2, 1)
    naive_combine_rows(function, out, gate, up)


@triton.jit
def _multiply(
    x, memory, out, x_stride, part_stride, out_stride, n, k, part, FORM: tl.constexpr, EXACT: tl.constexpr,
    PRECISION: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, HEIGHT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One part of k of OUTPUTS outputs of HEIGHT rows."""
    start_next(DEPENDENT)
    output = (tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    row = (tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    begin = tl.program_id(2) * part
    end = tl.minimum(begin + part, k)
    if EXACT:
        prefetch_tiles(memory, begin, output, k, FORM, INPUTS, DEPENDENT)
    wait_for_previous(DEPENDENT)
    total = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    x_rows, outputs, real = x + row[None, :] * x_stride, output[:, None], (output < n)[:, None]
    for first in range(begin, end, INPUTS):
        total = add_product(
            total, x_rows, memory, first, outputs, real, end, k, n, FORM, OUTPUTS, INPUTS, EXACT, PRECISION
        )
    to = out + tl.program_id(2).to(tl.int64) * part_stride + row[None, :] * out_stride + outputs
    tl.store(to, total, real)


@triton.jit
def _multiply_gated(
    x, memory, out, x_stride, n, k, FORM: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
    FUNCTION: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, HEIGHT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    output = (tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    row = (tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    if EXACT:
        prefetch_tiles(memory, 0, output, k, FORM, INPUTS, DEPENDENT)
        prefetch_tiles(memory, 0, output + n, k, FORM, INPUTS, DEPENDENT)
    wait_for_previous(DEPENDENT)
    gate = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    up = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    x_rows, outputs, real = x + row[None, :] * x_stride, output[:, None], (output < n)[:, None]
    for first in range(0, k, INPUTS):
        gate = add_product(
            gate, x_rows, memory, first, outputs, real, k, k, 2 * n, FORM, OUTPUTS, INPUTS, EXACT, PRECISION
        )
        up = add_product(
            up, x_rows, memory, first, outputs + n, real, k, k, 2 * n, FORM, OUTPUTS, INPUTS, EXACT, PRECISION
        )
    value = activate(gate, up, FUNCTION)
    to = out + row[None, :] * n + outputs
    tl.store(to, value.to(out.dtype.element_ty), real)
