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

from spec_kernels.gpu.blocks import add_product, prefetch_tiles
from spec_kernels.gpu.forms import RUN
from spec_kernels.gpu.launch import capability, exact_precision, launch_options, start_next, wait_for_previous
from spec_kernels.gpu.repack import Matrix
from spec_kernels.gpu.rows import FUNCTIONS, Function, activate
from spec_kernels.ops.device_function import INTERPRETED, device_function

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
ROOMY = (80, 90, 100, 103)
"""Compute capabilities, times 10, with 160 KB of shared memory or more; others have 100 KB."""
SLOTS = 264
"""Programs of a wave, if two fit in a multiprocessor: more of them should be small enough for three."""
LAST = 16
"""Outputs of a gated unit that are made of all parts at once."""
NONE = -1
"""Stands for the number of a gated unit where there is none."""
TILES = 128
"""Outputs in tiles of 64: matrices with more of them than this fill a device without parts of k."""
PROGRAMS = {True: 768, False: 1536}
"""Tiles, times parts, that fill a device: of bytes, and of nibbles, whose unpacking takes more warps."""


@dataclass(frozen=True)
class Tiling:
    """Options of computing a tile; they change no bit of the result.

    outputs, inputs: of a tile. warps, stages: of a program. registers: max of a thread, None: as the compiler likes.
    """

    outputs: int
    inputs: int
    warps: int = 4
    stages: int = 4
    registers: int | None = None


@dataclass(frozen=True, eq=False)
class Room:
    """Memory for the parts of gate and up, float32 [S, P, n], and zeros int32, one for each tile of results."""

    parts: Tensor
    counts: Tensor


def padded_rows(rows: int) -> int:
    """Rows that memory needs so that whole tiles can be read and written."""
    return max(FEWEST, triton.next_power_of_2(max(1, rows))) if rows <= ROWS else triton.cdiv(rows, ROWS) * ROWS


def parts_of(*matrices: Matrix) -> int:
    """Parts of k of matrices one below the other: the order of a sum depends on it."""
    n, k, forms = sum(m.n for m in matrices), matrices[0].k, [m.form for m in matrices]
    tiles, split = triton.cdiv(n, 64), 4 if triton.cdiv(n, 64) <= TILES else 1
    if any(form.blocks for form in forms):
        programs = max(PROGRAMS[form.kind == "bytes"] for form in forms if form.blocks)
        split = 16
        while split > 1 and (split * tiles > programs or k < split * BLOCK_PART or k % (split * 256)):
            split //= 2
    while split > 1 and k % (split * PART):
        split //= 2
    return split


def tile_rows(matrix: Matrix, rows: int) -> int:
    """Rows of a tile, of ``padded_rows``."""
    return min(rows, BLOCK_ROWS if matrix.form.blocks else ROWS)


def tiling(matrix: Matrix, rows: int, split: int = 1, pair: bool = False) -> Tiling:
    """The fastest known tiling for a number of rows. split: parts of k. pair: two matrices at once."""
    n, k = matrix.n, matrix.k
    if INTERPRETED:
        return Tiling(128, 128)  # few programs
    if matrix.form.blocks:
        return _block_tiling(matrix, rows, pair)
    if k % PART or n % 64:
        return Tiling(16, 32, 4, 2)
    if matrix.dtype == torch.float32:  # wide tiles take twice the memory
        return Tiling(32, 32, 4, 2)
    if rows > 64:  # 128 x 128 results of a program, which compute for as long as they read
        return Tiling(64, 64, 8, 4) if pair else Tiling(128, 64, 8, 4)
    if pair:
        return Tiling(32, 128, 4, 4 if rows <= 16 else 3)
    if rows > 32:
        return Tiling(64, 64, 4, 4)
    if split == 1 or capability() not in ROOMY:
        return Tiling(64, 128, 4, 3)
    if rows <= 16 and split * triton.cdiv(n, 64) > SLOTS:
        return Tiling(64, 64, 4, 6)
    return Tiling(64, 128, 4, 4)


def _block_tiling(matrix: Matrix, rows: int, pair: bool) -> Tiling:
    """Two warps: of four, triton makes products that load unpacked operands two bytes at a time."""
    if matrix.dtype == torch.float32:
        return Tiling(32, RUN, 2, 2)
    if pair or rows > 16:
        return Tiling(32, RUN, 2, 2)
    # The compiler would take more where it need not, and spill on other cards.
    registers = None if matrix.form.minimums or capability() not in ROOMY else 128
    return Tiling(64, RUN, 2, 2, registers)  # a third stage would take more than 128


def multiply(x: Tensor, matrix: Matrix, out: Tensor) -> None:
    """out[s] = x Wᵀ over the s-th part of k.

    :param x: [P, k] of the matrix' dtype, P as ``padded_rows`` gives it.
    :param out: float32 [parts_of(...), P, n], columns of the memory of all matrices that x is multiplied with.
    """
    split = len(out)
    _launch(x, matrix, out, Room(out, out), tiling(matrix, len(x), split), split, NONE)


def room_sizes(matrix: Matrix, rows: int) -> tuple[int, int] | None:
    """Numbers of parts and of counts in the ``Room`` of a gated product; None: it needs no room.

    Floats take both matrices at once. Blocks have parts of k, as their unpacking takes many warps: the program that
    comes last to a tile of results makes them of the sums of all parts, in order.
    """
    if not matrix.form.blocks:
        return None
    tiles = triton.cdiv(matrix.n // 2, tiling(matrix, rows).outputs) * triton.cdiv(rows, tile_rows(matrix, rows))
    return parts_of(matrix) * rows * matrix.n, tiles


def multiply_gated(x: Tensor, matrix: Matrix, out: Tensor, function: Function, room: Room | None = None) -> None:
    """out = act(x Gᵀ) · x Uᵀ with W = [G | U] row by row.

    :param x: [P, k]. :param matrix: [2 F, k]. :param out: [P, F]. :param function: a gated unit of ``rows``.
    :param room: of ``room_sizes``.
    """
    split, number = 1 if room is None else parts_of(matrix), FUNCTIONS.index(function)
    how = tiling(matrix, len(x), split, pair=room is None)
    _launch(x, matrix, out, room or Room(out[None], out), how, split, number)


def _launch(x: Tensor, matrix: Matrix, out: Tensor, room: Room, tiling: Tiling, split: int, function: int) -> None:
    """function: of a gated unit, or NONE. room: with the memory of all parts."""
    gated, pair = function != NONE, function != NONE and not matrix.form.blocks
    rows, n, k = len(x), matrix.n // 2 if gated else matrix.n, matrix.k
    height, parts = tile_rows(matrix, rows), room.parts
    tiles = triton.cdiv(n, tiling.outputs) * (2 if gated and not pair else 1)
    exact = n % tiling.outputs == 0 and k % (split * tiling.inputs) == 0
    _multiply[tiles, triton.cdiv(rows, height), split](
        x, matrix.memory, parts, room.counts, out, x.stride(0), parts.stride(0), parts.stride(1), n, k,
        triton.cdiv(k, split), matrix.form, exact, exact_precision(x.dtype), tiling.outputs, tiling.inputs, height,
        split, function, gated, pair, tiling.stages, tiling.outputs if INTERPRETED else LAST,
        **launch_options(tiling.warps, tiling.stages, registers=tiling.registers if gated else None),
    )  # fmt: skip


@triton.jit
def _multiply(
    x, memory, parts, counts, out, x_stride, part_stride, stride, n, k, part, FORM: tl.constexpr, EXACT: tl.constexpr,
    PRECISION: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, HEIGHT: tl.constexpr, SPLIT: tl.constexpr,
    FUNCTION: tl.constexpr, GATED: tl.constexpr, PAIR: tl.constexpr, STAGES: tl.constexpr, LAST: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One part of k of OUTPUTS outputs of HEIGHT rows. n: outputs of one matrix. PAIR: of two at once."""
    start_next(DEPENDENT)
    tile, matrices = tl.program_id(0), 2 if GATED else 1
    tiles = tl.num_programs(0) if PAIR or not GATED else tl.num_programs(0) // 2
    column = (tile % tiles * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    row = (tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    output, begin = column + tile // tiles * n, tl.program_id(2) * part
    end = tl.minimum(begin + part, k)
    if EXACT:
        prefetch_tiles(memory, begin, output, k, FORM, INPUTS, DEPENDENT)
        if PAIR:
            prefetch_tiles(memory, begin, output + n, k, FORM, INPUTS, DEPENDENT)
    wait_for_previous(DEPENDENT)
    total = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    up = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    x_rows, outputs, real = x + row[None, :] * x_stride, output[:, None], (column < n)[:, None]
    for first in tl.range(begin, end, INPUTS, num_stages=STAGES):
        total = add_product(
            total, x_rows, memory, first, outputs, real, end, k, n * matrices, FORM, OUTPUTS, INPUTS, EXACT, PRECISION
        )
        if PAIR:
            up = add_product(
                up, x_rows, memory, first, outputs + n, real, end, k, n * matrices, FORM, OUTPUTS, INPUTS, EXACT,
                PRECISION,
            )  # fmt: skip
    to = out + row[None, :] * n + column[:, None]
    if PAIR:
        tl.store(to, activate(total, up, FUNCTION).to(out.dtype.element_ty), real)
    else:
        at = parts + row[None, :] * stride
        tl.store(at + tl.program_id(2).to(tl.int64) * part_stride + outputs, total * FORM.unit, real)
        if GATED:
            tl.debug_barrier()  # a program counts when all its threads have stored
            count = counts + tile % tiles * tl.num_programs(1) + tl.program_id(1)
            if tl.atomic_add(count, 1, sem="acq_rel") == 2 * SPLIT - 1:
                for first in range(0, OUTPUTS, LAST):  # few registers, as the products need the others
                    some = tile % tiles * OUTPUTS + first + tl.arange(0, LAST)
                    combine_parts(parts, part_stride, stride, row, some, n, out, SPLIT, FUNCTION, LAST, HEIGHT)
                tl.store(count, 0)  # for the next launch


@device_function
def combine_parts(
    parts, part_stride, stride, row, column, n, out, SPLIT: tl.constexpr, FUNCTION: tl.constexpr,
    OUTPUTS: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """A gated unit of the sums of all parts, in order, of some outputs."""
    gate = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    up = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
    of_part, real = parts + row[None, :] * stride + column[:, None], (column < n)[:, None]
    for _ in range(SPLIT):
        gate += tl.load(of_part, real, other=0.0)
        up += tl.load(of_part + n, real, other=0.0)
        of_part += part_stride
    value = activate(gate, up, FUNCTION)
    tl.store(out + row[None, :] * n + column[:, None], value.to(out.dtype.element_ty), real)
