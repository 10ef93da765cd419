"""The residual stream: parts of a product are summed and added to it, and normalised, in one kernel.

A product with a matrix leaves its result in parts (``products``). Whoever reads the result sums them in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import ROWS, launch_options, start_next, wait_for_previous

WARPS_MAX = 32
"""Warps of a program: a row is read at once, so that its sum waits for memory once."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The result of a product before its sum.

    memory: float32 [S, P, n], the parts. bias: float32 [n] or None.
    """

    memory: Tensor
    bias: Tensor | None = None

    def columns(self, begin: int, width: int) -> Parts:
        """The parts of some columns."""
        bias = None if self.bias is None else self.bias[begin : begin + width]
        return Parts(self.memory[:, :, begin : begin + width], bias)

    def total(self) -> Tensor:
        """float32 [P, n]: the sum in order, by torch."""
        total = self.memory[0].clone()
        for part in self.memory[1:]:
            total += part
        return total if self.bias is None else total + self.bias


@dataclass(frozen=True, eq=False)
class Norm:
    """x / sqrt(mean(x²) + eps) · weight. weight: float32 [D]. groups: equal parts of it, each with its own mean."""

    weight: Tensor
    eps: float
    groups: int = 1


def add_parts(
    rows: int,
    parts: Parts | None,
    base: Tensor | None,
    inner: Norm | None = None,
    total: Tensor | None = None,
    outer: Norm | None = None,
    out: Tensor | None = None,
    scale: float = 1.0,
) -> None:
    """total = (base + inner(Σ parts + bias)) · scale; out = outer(total), piece by piece of the width of its weight.

    :param rows: how many rows. :param parts: of [S, P, W]; None: the sum is 0. :param base: [P, W], None: 0.
    :param inner: a norm of the sum; None: the sum itself. :param total: [P, W], may be ``base``; None: it is not kept.
    :param outer, out: norm of the total and where it goes, [P, W]; None: the total is only kept.
    """
    some = base if parts is None else parts.memory[0]
    width = some.shape[1]
    groups = 1 if outer is None else outer.groups
    piece = width if outer is None else len(outer.weight) // groups
    block, memory = triton.next_power_of_2(piece), some if parts is None else parts.memory
    split, part_stride = (0, 0) if parts is None else (len(memory), memory.stride(0))
    bias = None if parts is None else parts.bias
    at = lambda m: some if m is None else m
    stride = lambda m: 0 if m is None else m.stride(0)
    _add_parts[triton.cdiv(rows, ROWS), width // piece](
        memory, at(bias), at(base), at(inner and inner.weight), at(total), at(outer and outer.weight), at(out),
        rows, part_stride, memory.stride(-2), stride(base), stride(total), stride(out),
        inner.eps if inner else 0.0, outer.eps if outer else 0.0, scale,
        split, bias is not None, base is not None, inner is not None, total is not None, outer is not None,
        groups, piece, block, ROWS, **launch_options(max(1, min(WARPS_MAX, block // 128))),
    )  # fmt: skip


@triton.jit
def _add_parts(
    parts, bias, base, inner, total, outer, out, rows, part_stride, stride, base_stride, total_stride, out_stride,
    inner_eps, outer_eps, scale, SPLIT: tl.constexpr, BIAS: tl.constexpr, BASE: tl.constexpr, INNER: tl.constexpr,
    TOTAL: tl.constexpr, OUTER: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One piece of ROWS rows: values are [ROWS, BLOCK]."""
    start_next(DEPENDENT)
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    there = (row < rows)[:, None] & (column < D)[None, :]
    row, at = row.to(tl.int64)[:, None], (tl.program_id(1) * D + column)[None, :]
    if OUTER:
        group = tl.program_id(1) % GROUPS
        outer_weight = tl.load(outer + group * D + column, column < D, other=0.0)[None, :]
    if INNER:
        inner_weight = tl.load(inner + column, column < D, other=0.0)[None, :]
    value = tl.zeros([ROWS, BLOCK], tl.float32)
    if BIAS:
        added = tl.load(bias + at, (column < D)[None, :], other=0.0)
    wait_for_previous(DEPENDENT)
    for part in tl.static_range(SPLIT):
        value += tl.load(parts + part * part_stride + row * stride + at, there, other=0.0)
    if BIAS:
        value += added
    if INNER:
        value = value / tl.sqrt(tl.sum(value * value, 1) / D + inner_eps)[:, None] * inner_weight
    if BASE:
        value += tl.load(base + row * base_stride + at, there, other=0.0).to(tl.float32)
    value *= scale
    if TOTAL:
        tl.store(total + row * total_stride + at, value.to(total.dtype.element_ty), there)
    if OUTER:
        normed = value / tl.sqrt(tl.sum(value * value, 1) / D + outer_eps)[:, None] * outer_weight
        tl.store(out + row * out_stride + at, normed.to(out.dtype.element_ty), there)
