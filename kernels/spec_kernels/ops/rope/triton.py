"""(a, b) -> (a cos - b sin, a sin + b cos) for every pair of a head; a program rotates several heads of a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.ops.rope.reference import Pairs

HEADS = 8
"""Heads that share one evaluation of sine and cosine."""


def rope(x: Tensor, positions: Tensor, frequencies: Tensor, pairs: Pairs, rope_scale: float = 1.0) -> Tensor:
    """Turn the first 2 · len(frequencies) dimensions of every head; the others pass through.

    x: [R, H, D]    positions: [R] int64    frequencies: float32 [pairs]
    rope_scale: what cos and sin are multiplied by (YaRN)
    """
    rows, heads, dim = x.shape
    pairs_of_head = len(frequencies)
    # Pair i is (i · step, i · step + apart).
    step, apart = (2, 1) if pairs == "interleaved" else (1, pairs_of_head)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    blocks = triton.next_power_of_2(pairs_of_head), triton.next_power_of_2(max(dim - 2 * pairs_of_head, 1))
    if rows:
        grid = rows, triton.cdiv(heads, HEADS)
        _rope[grid](
            x, positions, frequencies.contiguous(), out, *x.stride(), positions.stride(0), rope_scale,
            heads, dim, pairs_of_head, step, apart, HEADS, *blocks,
        )  # fmt: skip
    return out


@triton.jit
def _rope(
    x, positions, frequencies, out, row_stride, head_stride, stride, position_stride, rope_scale,
    H: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    x += row * row_stride + head * head_stride
    out += (row * H + head) * D
    pair = tl.arange(0, BLOCK)[None, :]
    held = (head < H) & (pair < PAIRS)
    angle = tl.load(positions + row * position_stride).to(tl.float32) * tl.load(frequencies + pair, pair < PAIRS)
    cos, sin = tl.cos(angle) * rope_scale, tl.sin(angle) * rope_scale
    a = tl.load(x + pair * STEP * stride, held).to(tl.float32)
    b = tl.load(x + (pair * STEP + APART) * stride, held).to(tl.float32)
    tl.store(out + pair * STEP, (a * cos - b * sin).to(out.dtype.element_ty), held)
    tl.store(out + pair * STEP + APART, (a * sin + b * cos).to(out.dtype.element_ty), held)
    rest = 2 * PAIRS + tl.arange(0, REST)[None, :]
    kept = (head < H) & (rest < D)
    tl.store(out + rest, tl.load(x + rest * stride, kept), kept)
