"""Heads of a projection: sum of parts, bias, norm, rotation; queries to a buffer, keys and values to the pages."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import ROWS, launch_options, start_next, wait_for_previous
from spec_kernels.gpu.layout import FIELDS
from spec_kernels.gpu.pool import Pool
from spec_kernels.gpu.sums import Norm, Parts
from spec_kernels.gpu.tiles import PAGE
from spec_kernels.ops.device_function import device_function


@dataclass(frozen=True, eq=False)
class Rotary:
    """cos, sin: float32 [positions, pairs]: dimension i of a head rotates with i + pairs, others stay."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, eq=False)
class Heads:
    """Inputs and outputs of one launch.

    parts: columns of ``queries`` heads, then, if ``cached``, of the pool's keys and, if it has any, values.
    shared: values are the keys, before their norm, and have no columns.
    q_norm, k_norm, v_norm: of each head, or None; their eps are equal. q: [P, queries, D]. layer: of the pool.
    q_roots, k_roots: float32 [P], of norms over all heads of a row, see ``measure_rows``; None: the kernel has them.
    positions: int32 [P, pairs], of each pair of a head; None: a row's description has its only one.
    """

    parts: Parts
    queries: int
    cached: bool
    dim: int
    q_norm: Norm | None
    k_norm: Norm | None
    v_norm: Norm | None
    rotary: Rotary
    q: Tensor | None
    pool: Pool
    layer: int
    shared: bool = False
    q_roots: Tensor | None = None
    k_roots: Tensor | None = None
    positions: Tensor | None = None


def store_heads(rows: Tensor, heads: Heads) -> None:
    """q = rotate(norm(q)); keys and values of rows whose place is not below 0 go to their pages.

    :param rows: int32 [R, FIELDS], see ``layout``.
    """
    memory, pool, table = heads.parts.memory, heads.pool, heads.pool.table(heads.layer)
    kv_heads, planes = (pool.shapes[heads.layer][i] if heads.cached else 0 for i in (0, 2))
    norms, bias, some = (heads.q_norm, heads.k_norm, heads.v_norm), heads.parts.bias, memory[0]
    at = lambda m: some if m is None else m
    _store_heads[triton.cdiv(len(rows), ROWS), heads.queries + planes * kv_heads](
        memory, at(bias), rows, *(some if norm is None else norm.weight for norm in norms), at(heads.q_roots),
        at(heads.k_roots), heads.rotary.cos, heads.rotary.sin, at(heads.positions), at(heads.q), pool.memory,
        table, len(rows), memory.stride(0), memory.stride(1), table.stride(0), pool.starts[heads.layer],
        next((norm.eps for norm in norms if norm is not None), 0.0), len(memory), bias is not None,
        *(norm is not None for norm in norms), heads.q_roots is not None, heads.k_roots is not None, heads.shared,
        heads.positions is not None, FIELDS, heads.queries, kv_heads, heads.dim, heads.rotary.cos.shape[1],
        triton.next_power_of_2(heads.dim), PAGE, ROWS, **launch_options(1),
    )  # fmt: skip


def measure_rows(parts: Parts, eps: float, roots: Tensor) -> None:
    """roots = sqrt(mean(x²) + eps) of whole rows. roots: float32 [R], written."""
    memory, bias = parts.memory, parts.bias
    _measure_rows[triton.cdiv(len(roots), ROWS), 1](
        memory, memory if bias is None else bias, roots, len(roots), memory.stride(0), memory.stride(1), eps,
        len(memory), bias is not None, memory.shape[2], triton.next_power_of_2(memory.shape[2]), ROWS,
        **launch_options(8),
    )  # fmt: skip


@device_function
def _sum(parts, bias, at, real, part_stride, row_at, SPLIT: tl.constexpr, BIAS: tl.constexpr):
    """The sum of parts at some columns of rows."""
    value = tl.load(parts + row_at + at, real, other=0.0)
    for part in tl.static_range(1, SPLIT):
        value += tl.load(parts + part * part_stride + row_at + at, real, other=0.0)
    if BIAS:
        value += tl.load(bias + at, real, other=0.0)
    return value


@triton.jit
def _measure_rows(
    parts, bias, roots, count, part_stride, stride, eps, SPLIT: tl.constexpr, BIAS: tl.constexpr, W: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    real, row_at = (row < count)[:, None] & (column < W)[None, :], row.to(tl.int64)[:, None] * stride
    wait_for_previous(DEPENDENT)
    value = _sum(parts, bias, column[None, :], real, part_stride, row_at, SPLIT, BIAS)
    tl.store(roots + row, tl.sqrt(tl.sum(value * value, 1) / W + eps), row < count)


@device_function
def _normalise(
    value, other, norm, roots, row, exists, first, column, partner, eps, WHOLE: tl.constexpr, D: tl.constexpr
):
    """A head and its partners, normalised. first: of its numbers in a weight of the whole row."""
    if WHOLE:
        root = tl.load(roots + row, exists, other=1.0)[:, None]
    else:
        root = tl.sqrt(tl.sum(value * value, 1) / D + eps)[:, None]
        first = 0
    value = value / root * tl.load(norm + first + column, column < D, other=0.0)[None, :]
    other = other / root * tl.load(norm + first + partner, column < D, other=0.0)[None, :]
    return value, other


@triton.jit
def _store_heads(
    parts, bias, rows, q_norm, k_norm, v_norm, q_roots, k_roots, cos, sin, positions, q, pages, tables, count,
    part_stride, stride, table_stride, layer_at, eps, SPLIT: tl.constexpr, BIAS: tl.constexpr, Q_NORM: tl.constexpr,
    K_NORM: tl.constexpr, V_NORM: tl.constexpr, Q_WHOLE: tl.constexpr, K_WHOLE: tl.constexpr, SHARED: tl.constexpr,
    EACH: tl.constexpr, FIELDS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr,
    PAIRS: tl.constexpr, BLOCK: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One head of ROWS rows: values are [ROWS, BLOCK]. EACH: every pair has a position of its own."""
    start_next(DEPENDENT)
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    column, exists = tl.arange(0, BLOCK), row < count
    partner = tl.where(column < PAIRS, column + PAIRS, tl.where(column < 2 * PAIRS, column - PAIRS, column))
    pair = tl.where(column < PAIRS, column, column - PAIRS)
    fields = rows + row * FIELDS
    line = tl.load(fields + 1, exists, other=0).to(tl.int64)
    place = tl.load(fields + 3, exists, other=-1)
    real = exists[:, None] & (column < D)[None, :]
    turns = real & (column < 2 * PAIRS)[None, :]
    if EACH:
        position = tl.load(positions + row[:, None] * PAIRS + pair[None, :], turns, other=0).to(tl.int64)
    else:
        position = tl.load(fields + 2, exists, other=0).to(tl.int64)[:, None]
    c = tl.load(cos + position * PAIRS + pair[None, :], turns, other=1.0)
    s = tl.load(sin + position * PAIRS + pair[None, :], turns, other=0.0)
    s = tl.where((column < PAIRS)[None, :], -s, s)
    page = tl.load(tables + line * table_stride + tl.maximum(place, 0) // PAGE)
    wait_for_previous(DEPENDENT)
    row_at = row.to(tl.int64)[:, None] * stride
    source = head
    if SHARED:
        source = tl.where(head >= QUERIES + KEYS, head - KEYS, head)
    value = _sum(parts, bias, (source * D + column)[None, :], real, part_stride, row_at, SPLIT, BIAS)
    if head < QUERIES + KEYS:
        other = _sum(parts, bias, (head * D + partner)[None, :], real, part_stride, row_at, SPLIT, BIAS)
        if head < QUERIES:
            if Q_NORM:
                value, other = _normalise(
                    value, other, q_norm, q_roots, row, exists, head * D, column, partner, eps, Q_WHOLE, D
                )
        else:
            if K_NORM:
                value, other = _normalise(
                    value, other, k_norm, k_roots, row, exists, (head - QUERIES) * D, column, partner, eps, K_WHOLE, D
                )
        value = value * c + other * s
    else:
        if V_NORM:
            root = tl.sqrt(tl.sum(value * value, 1) / D + eps)[:, None]
            value = value / root * tl.load(v_norm + column, column < D, other=0.0)[None, :]
    if head < QUERIES:
        q_at = q + (row.to(tl.int64) * QUERIES + head)[:, None] * D
        tl.store(q_at + column[None, :], value.to(q.dtype.element_ty), real)
    else:
        # A page of a layer: keys [K, PAGE, D], then values.
        at = page + layer_at + ((head - QUERIES) * PAGE + tl.maximum(place, 0) % PAGE).to(tl.int64) * D
        tl.store(pages + at[:, None] + column[None, :], value.to(pages.dtype.element_ty), real & (place >= 0)[:, None])
