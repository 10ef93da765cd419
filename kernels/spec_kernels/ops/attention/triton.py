"""softmax(q kᵀ · scale) v, with grouped heads and an explicit mask; cached rows are read once for all query rows.

Cached rows are cut into pieces that are attended to side by side and summed afterwards (Dao et al., Flash-Decoding).
The pieces begin at fixed columns and the tiles have a fixed height, so a row's result depends neither on the rows
computed with it nor on hidden columns behind it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECE = 512
"""Cached rows of one program."""
COLUMNS = 32
"""Cached rows in one product."""
WIDE = 64
"""Query rows, times heads of a group, in one product on tensor cores."""
NARROW = 16
"""Query rows, times heads of a group, in one product in float32."""


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Attention of R query rows over T cached rows, computed in float32.

    q: [R, H, Dk]    k: [T, K, Dk]    v: [T, K, Dv]    visible: bool [R, T], at least one per row
    returns [R, H, Dv]; query head h reads key head h // (H / K)
    """
    (rows, heads, key_dim), (total, kv_heads, value_dim) = q.shape, v.shape
    out = torch.empty(rows, heads, value_dim, dtype=q.dtype, device=q.device)
    if not rows:
        return out
    pieces, queries = triton.cdiv(total, PIECE), rows * (heads // kv_heads)
    height = NARROW if k.dtype == torch.float32 else WIDE
    sums = torch.empty(pieces, rows, heads, value_dim, dtype=torch.float32, device=q.device)
    peaks, masses = torch.empty(2, pieces, rows, heads, dtype=torch.float32, device=q.device)
    blocks = [max(16, triton.next_power_of_2(dim)) for dim in (key_dim, value_dim)]
    _attend[pieces, kv_heads, triton.cdiv(queries, height)](
        q, k, v, visible.view(torch.uint8), sums, peaks, masses,
        *q.stride(), *k.stride(), *v.stride(), *visible.stride(), scale, rows, total,
        heads, heads // kv_heads, key_dim, value_dim, height, COLUMNS, PIECE, *blocks, num_stages=2, num_warps=8,
    )  # fmt: skip
    _combine[rows, heads](sums, peaks, masses, out, pieces, rows, heads, value_dim, blocks[1])
    return out


@triton.jit
def _attend(
    q, k, v, visible, sums, peaks, masses,
    q_row, q_head, q_dim, k_row, k_head, k_dim, v_row, v_head, v_dim, visible_row, visible_column,
    scale, rows, total,
    H: tl.constexpr, GROUP: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
    HEIGHT: tl.constexpr, COLUMNS: tl.constexpr, PIECE: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One piece of the cached rows under HEIGHT queries of a group: the largest score, the mass, the weighted sum."""
    piece, kv_head = tl.program_id(0), tl.program_id(1)
    query = tl.program_id(2) * HEIGHT + tl.arange(0, HEIGHT)
    row, head = query // GROUP, kv_head * GROUP + query % GROUP
    real = row < rows
    in_key, in_value = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    queries = tl.load(
        q + row[:, None] * q_row + head[:, None] * q_head + in_key[None, :] * q_dim,
        real[:, None] & (in_key < DK)[None, :], other=0.0,
    ).to(k.dtype.element_ty)  # fmt: skip
    peak = tl.full([HEIGHT], float("-inf"), tl.float32)
    mass = tl.zeros([HEIGHT], tl.float32)
    total_sum = tl.zeros([HEIGHT, BLOCK_V], tl.float32)
    for begin in range(piece * PIECE, min(piece * PIECE + PIECE, total), COLUMNS):
        at = (begin + tl.arange(0, COLUMNS)).to(tl.int64)
        keys = tl.load(
            k + at[None, :] * k_row + kv_head * k_head + in_key[:, None] * k_dim,
            (at < total)[None, :] & (in_key < DK)[:, None], other=0.0,
        )  # fmt: skip
        seen = tl.load(
            visible + row[:, None] * visible_row + at[None, :] * visible_column,
            real[:, None] & (at < total)[None, :], other=0,
        )  # fmt: skip
        scores = tl.dot(queries, keys, input_precision="ieee") * scale
        scores = tl.where(seen != 0, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        # Nothing seen so far: any finite number, for -inf minus -inf is none.
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weights, kept = tl.exp(scores - level[:, None]), tl.exp(peak - level)
        values = tl.load(
            v + at[:, None] * v_row + kv_head * v_head + in_value[None, :] * v_dim,
            (at < total)[:, None] & (in_value < DV)[None, :], other=0.0,
        )  # fmt: skip
        product = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total_sum = total_sum * kept[:, None] + product
        mass = mass * kept + tl.sum(weights, 1)
        peak = higher
    place = (piece * rows + row).to(tl.int64) * H + head
    tl.store(peaks + place, peak, real)
    tl.store(masses + place, mass, real)
    tl.store(sums + place[:, None] * DV + in_value[None, :], total_sum, real[:, None] & (in_value < DV)[None, :])


@triton.jit
def _combine(sums, peaks, masses, out, pieces, rows, H: tl.constexpr, DV: tl.constexpr, BLOCK: tl.constexpr):
    """The pieces of one row and head, in order."""
    place = tl.program_id(0).to(tl.int64) * H + tl.program_id(1)
    at = tl.arange(0, BLOCK)
    peak = float("-inf")
    mass = 0.0
    total = tl.zeros([BLOCK], tl.float32)
    for piece in range(pieces):
        there = place + piece * rows * H
        other = tl.load(peaks + there)
        higher = tl.maximum(peak, other)
        level = tl.where(higher == float("-inf"), 0.0, higher)
        kept, added = tl.exp(peak - level), tl.exp(other - level)
        total = total * kept + tl.load(sums + there * DV + at, at < DV, other=0.0) * added
        mass = mass * kept + tl.load(masses + there) * added
        peak = higher
    tl.store(out + place * DV + at, (total / mass).to(out.dtype.element_ty), at < DV)
