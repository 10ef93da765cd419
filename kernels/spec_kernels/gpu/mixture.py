"""Experts of a mixture: every pair of a row and one of its experts is a line, and lines are sorted by expert.

Lines of one expert are cut into tiles; a few rows make tiles of a line or two, a prompt fills them. A line's result
does not depend on the lines next to it. Nothing is known on the host: surplus tiles compute nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.blocks import add_product
from spec_kernels.gpu.launch import exact_precision, launch_options, start_next, wait_for_previous
from spec_kernels.gpu.products import NONE, tiling
from spec_kernels.gpu.repack import Matrix
from spec_kernels.gpu.routing import route_into, route_sigmoid_into
from spec_kernels.gpu.rows import FUNCTIONS, Function, activate
from spec_kernels.model.shapes import Experts
from spec_kernels.ops.device_function import INTERPRETED

SORTED = 64 if INTERPRETED else 1
"""Experts whose lines one program sorts: the interpreter runs few large programs faster."""
LINES = 1024
"""Lines that are sorted at once."""
FEW = 16
"""Lines of a tile, where an expert has few of them."""
MANY = 64
"""Lines of a tile, where an expert has many of them."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Pairs of a row and one of its experts: line ``row · used + place``.

    chosen: int64 [R, used], experts of each row. shares: float32 [R, used], their weights.
    order: int32 [R · used], lines by expert. counts: int32 [E], lines of each expert.
    """

    chosen: Tensor
    shares: Tensor
    order: Tensor
    counts: Tensor

    @staticmethod
    def empty(rows: int, used: int, experts: int, device: torch.device) -> Lines:
        zeros = lambda dtype, *shape: torch.zeros(shape, dtype=dtype, device=device)
        chosen, shares = zeros(torch.int64, rows, used), zeros(torch.float32, rows, used)
        return Lines(chosen, shares, zeros(torch.int32, rows * used), zeros(torch.int32, experts))


def route_rows(scores: Tensor, bias: Tensor, factors: Tensor | None, experts: Experts, lines: Lines) -> None:
    """Fill ``chosen`` and ``shares`` by the router's scores [R, E]. bias, factors: float32 [E], see ``Mixture``."""
    e, choices = experts, (lines.shares, lines.chosen)
    if e.sigmoid:
        route_sigmoid_into(*choices, scores, bias, e.normalise, e.scale, e.groups, e.groups_used)
    else:
        route_into(*choices, scores, e.normalise, e.scale, factors)


def sort_lines(lines: Lines) -> None:
    """Fill ``order`` and ``counts``; lines of one expert stay in order."""
    experts, count = len(lines.counts), lines.chosen.numel()
    _sort_lines[triton.cdiv(experts, SORTED), 1](
        lines.chosen, lines.order, lines.counts, count, experts, SORTED,
        max(2, min(LINES, triton.next_power_of_2(count))), **launch_options(4),
    )  # fmt: skip


def multiply_gated_experts(
    x: Tensor, lines: Lines, matrices: tuple[Matrix, Matrix], biases: tuple[Tensor, Tensor] | None, out: Tensor,
    function: Function,
) -> None:  # fmt: skip
    """out[line] = act(x Gᵀ + b) · (x Uᵀ + c), with x of the line's row and matrices of its expert.

    :param x: [P, k]. :param matrices: G and U of all experts, one below the other, [E n, k].
    :param biases: b and c, float32 [E, n]. :param out: [R · used, n]. :param function: a gated unit of ``rows``.
    """
    first, second = (out, out) if biases is None else biases
    _launch(x, lines, *matrices, first, second, out, out.shape[1], biases is not None, FUNCTIONS.index(function))


def multiply_experts(x: Tensor, lines: Lines, matrix: Matrix, bias: Tensor | None, out: Tensor) -> None:
    """out[place, row] = share · (x Wᵀ + b) of every line, with the matrix of its expert.

    :param x: [R · used, k]. :param matrix: of all experts, [E n, k]. :param bias: float32 [E, n].
    :param out: float32 [used, P, n].
    """
    some = lines.shares if bias is None else bias
    _launch(x, lines, matrix, matrix, some, some, out, out.shape[2], bias is not None, NONE)


def _launch(
    x: Tensor, lines: Lines, matrix: Matrix, up: Matrix, first: Tensor, second: Tensor, out: Tensor, n: int,
    biased: bool, function: int,
) -> None:  # fmt: skip
    """n: outputs of an expert. function: of a gated unit, or NONE."""
    experts, count, k = len(lines.counts), len(lines.order), x.shape[1]
    gated = function != NONE
    height = FEW if count <= FEW * experts else MANY
    how = tiling(replace(up if up.form.blocks else matrix, n=n), height, pair=gated)
    tiles = min(count, experts + count // height)
    _multiply_experts[tiles, triton.cdiv(n, how.outputs)](
        x, matrix.memory, up.memory, first, second, lines.shares, lines.order, lines.counts, out, x.stride(0), n, k,
        experts, 0 if gated else out.stride(0), matrix.form, up.form, triton.next_power_of_2(experts),
        lines.chosen.shape[1], biased, function, gated, n % how.outputs == 0 and k % how.inputs == 0,
        exact_precision(x.dtype), how.outputs, how.inputs, height, how.stages, **launch_options(how.warps, how.stages),
    )  # fmt: skip


@triton.jit
def _sort_lines(
    chosen, order, counts, lines, experts, EXPERTS: tl.constexpr, LINES: tl.constexpr, DEPENDENT: tl.constexpr
):
    """Lines of EXPERTS experts."""
    start_next(DEPENDENT)
    expert, line = tl.program_id(0) * EXPERTS + tl.arange(0, EXPERTS), tl.arange(0, LINES)
    wait_for_previous(DEPENDENT)
    before, count = tl.zeros([EXPERTS], tl.int32), tl.zeros([EXPERTS], tl.int32)
    for first in range(0, lines, LINES):
        of = tl.load(chosen + first + line, first + line < lines, other=experts).to(tl.int32)
        before += tl.sum((of[None, :] < expert[:, None]).to(tl.int32), 1)
        count += tl.sum((of[None, :] == expert[:, None]).to(tl.int32), 1)
    tl.store(counts + expert, count, expert < experts)
    for first in range(0, lines, LINES):
        of = tl.load(chosen + first + line, first + line < lines, other=experts).to(tl.int32)
        own = (of[None, :] == expert[:, None]) & (expert < experts)[:, None]
        place = before[:, None] + tl.cumsum(own.to(tl.int32), 1) - 1
        tl.store(order + place, (first + line)[None, :] + tl.zeros_like(place), own)
        before += tl.sum(own.to(tl.int32), 1)


@triton.jit
def _multiply_experts(
    x, memory, up_memory, first_bias, second_bias, shares, order, counts, out, x_stride, n, k, experts, place_stride,
    FORM: tl.constexpr, UP_FORM: tl.constexpr, EXPERTS: tl.constexpr, USED: tl.constexpr, BIASED: tl.constexpr,
    FUNCTION: tl.constexpr, GATED: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, HEIGHT: tl.constexpr, STAGES: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """OUTPUTS outputs of a tile of lines: of a gated unit, or of a product whose lines have shares."""
    start_next(DEPENDENT)
    tile, output = tl.program_id(0), (tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)[:, None]
    number = tl.arange(0, EXPERTS)
    wait_for_previous(DEPENDENT)
    count = tl.load(counts + number, number < experts, other=0)
    ends = tl.cumsum((count + HEIGHT - 1) // HEIGHT, 0)
    before = ends <= tile
    expert = tl.sum(before.to(tl.int32), 0)
    if expert < experts:
        own_tile = tile - tl.max(tl.where(before, ends, 0), 0)
        begin, stop = tl.sum(tl.where(before, count, 0), 0), tl.sum(tl.where(number <= expert, count, 0), 0)
        at = begin + own_tile * HEIGHT + tl.arange(0, HEIGHT)
        exists = (at < stop)[None, :]
        line = tl.load(order + at, at < stop, other=0).to(tl.int64)[None, :]
        x_rows = x + (line // USED if GATED else line) * x_stride
        real, row, stride = output < n, expert * n + output, experts * n
        total = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
        up = tl.zeros([OUTPUTS, HEIGHT], tl.float32)
        for first in tl.range(0, k, INPUTS, num_stages=STAGES):
            total = add_product(
                total, x_rows, memory, first, row, real, k, k, stride, FORM, OUTPUTS, INPUTS, EXACT, PRECISION
            )
            if GATED:
                up = add_product(
                    up, x_rows, up_memory, first, row, real, k, k, stride, UP_FORM, OUTPUTS, INPUTS, EXACT, PRECISION
                )
        total *= FORM.unit
        if BIASED:
            total += tl.load(first_bias + row, real, other=0.0)
        if GATED:
            up *= UP_FORM.unit
            if BIASED:
                up += tl.load(second_bias + row, real, other=0.0)
            value = activate(total, up, FUNCTION)
            tl.store(out + line * n + output, value.to(out.dtype.element_ty), real & exists)
        else:
            value = total * tl.load(shares + line, exists, other=0.0)
            tl.store(out + line % USED * place_stride + line // USED * n + output, value, real & exists)
