"""Heads of a projection: sum of parts, bias, norm, rotation; queries to a buffer, keys and values to the pages."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import ROWS, launch_options, start_next, wait_for_previous
from spec_kernels.gpu.layout import FIELDS
from spec_kernels.gpu.pages import PAGE, Pool
from spec_kernels.gpu.sums import Norm, Parts
from spec_kernels.ops.device_function import device_function


@dataclass(frozen=True, eq=False)
class Rotary:
    """cos, sin: float32 [positions, pairs]: dimension i of a head rotates with i + pairs, others stay."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, eq=False)
class Heads:
    """Inputs and outputs of one launch.

    parts: columns of ``queries`` heads, then, if ``cached``, of the pool's keys and values, side by side.
    q_norm, k_norm: of each head, or None. q: [P, queries, D]. layer: of the pool.
    """

    parts: Parts
    queries: int
    cached: bool
    dim: int
    q_norm: Norm | None
    k_norm: Norm | None
    rotary: Rotary
    q: Tensor | None
    pool: Pool
    layer: int


def store_heads(rows: Tensor, heads: Heads) -> None:
    """q = rotate(norm(q)); keys and values of rows whose place is not below 0 go to their pages.

    :param rows: int32 [R, FIELDS], see ``layout``.
    """
    memory, pool, kv_heads = heads.parts.memory, heads.pool, heads.pool.kv_heads if heads.cached else 0
    some, norm, bias = memory[0], heads.q_norm or heads.k_norm, heads.parts.bias
    weight = lambda n: some if n is None else n.weight
    _store_heads[triton.cdiv(len(rows), ROWS), heads.queries + 2 * kv_heads](
        memory, some if bias is None else bias, rows, weight(heads.q_norm), weight(heads.k_norm),
        heads.rotary.cos, heads.rotary.sin, some if heads.q is None else heads.q, pool.memory, pool.tables,
        len(rows), memory.stride(0), memory.stride(1), pool.tables.stride(0), heads.layer * pool.layer_stride,
        0.0 if norm is None else norm.eps, len(memory), bias is not None, heads.q_norm is not None,
        heads.k_norm is not None, FIELDS, heads.queries, kv_heads, heads.dim, heads.rotary.cos.shape[1],
        triton.next_power_of_2(heads.dim), PAGE, ROWS, **launch_options(1),
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
def _store_heads(
    parts, bias, rows, q_norm, k_norm, cos, sin, q, pages, tables, count, part_stride, stride, table_stride, layer_at,
    eps, SPLIT: tl.constexpr, BIAS: tl.constexpr, Q_NORM: tl.constexpr, K_NORM: tl.constexpr, FIELDS: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
    PAGE: tl.constexpr, ROWS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One head of ROWS rows: values are [ROWS, BLOCK]."""
    start_next(DEPENDENT)
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    column, exists = tl.arange(0, BLOCK), row < count
    partner = tl.where(column < PAIRS, column + PAIRS, tl.where(column < 2 * PAIRS, column - PAIRS, column))
    pair = tl.where(column < PAIRS, column, column - PAIRS)
    fields = rows + row * FIELDS
    line = tl.load(fields + 1, exists, other=0).to(tl.int64)
    position = tl.load(fields + 2, exists, other=0).to(tl.int64)
    place = tl.load(fields + 3, exists, other=-1)
    real = exists[:, None] & (column < D)[None, :]
    turns = real & (column < 2 * PAIRS)[None, :]
    c = tl.load(cos + position[:, None] * PAIRS + pair[None, :], turns, other=1.0)
    s = tl.load(sin + position[:, None] * PAIRS + pair[None, :], turns, other=0.0)
    s = tl.where((column < PAIRS)[None, :], -s, s)
    page = tl.load(tables + line * table_stride + tl.maximum(place, 0) // PAGE)
    wait_for_previous(DEPENDENT)
    row_at = row.to(tl.int64)[:, None] * stride
    value = _sum(parts, bias, (head * D + column)[None, :], real, part_stride, row_at, SPLIT, BIAS)
    if head < QUERIES + KEYS:
        other = _sum(parts, bias, (head * D + partner)[None, :], real, part_stride, row_at, SPLIT, BIAS)
        if head < QUERIES:
            if Q_NORM:
                root = tl.sqrt(tl.sum(value * value, 1) / D + eps)[:, None]
                value = value / root * tl.load(q_norm + column, column < D, other=0.0)[None, :]
                other = other / root * tl.load(q_norm + partner, column < D, other=0.0)[None, :]
        else:
            if K_NORM:
                root = tl.sqrt(tl.sum(value * value, 1) / D + eps)[:, None]
                value = value / root * tl.load(k_norm + column, column < D, other=0.0)[None, :]
                other = other / root * tl.load(k_norm + partner, column < D, other=0.0)[None, :]
        value = value * c + other * s
    if head < QUERIES:
        q_at = q + (row.to(tl.int64) * QUERIES + head)[:, None] * D
        tl.store(q_at + column[None, :], value.to(q.dtype.element_ty), real)
    else:
        # A page of a layer: keys [K, PAGE, D], then values.
        at = page + layer_at + ((head - QUERIES) * PAGE + tl.maximum(place, 0) % PAGE).to(tl.int64) * D
        tl.store(pages + at[:, None] + column[None, :], value.to(pages.dtype.element_ty), real & (place >= 0)[:, None])
