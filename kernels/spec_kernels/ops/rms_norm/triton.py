"""x / sqrt(mean(x²) + eps) · weight, one program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 4096
"""Columns read at once; a wider row is summed in pieces of this, in order."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension; computed in float32, given back in the dtype of ``x``.

    x: [..., D]    weight: [D], or anything that broadcasts against x
    """
    width = x.shape[-1]
    rows, weights = x.reshape(-1, width), _rows(weight, x)
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(width), WIDEST)
    if len(rows):
        _rms_norm[(len(rows),)](rows, weights, out, *rows.stride(), len(weights), eps, width, block)
    return out.view(x.shape)


def _rows(weight: Tensor, x: Tensor) -> Tensor:
    """Weights [n, D] such that row r of x [rows, D] is multiplied by row r % n."""
    if weight.shape != x.shape[x.dim() - weight.dim() :]:
        weight = weight.expand(x.shape)
    return weight.reshape(-1, x.shape[-1]).contiguous()


@triton.jit
def _rms_norm(x, weight, out, row_stride, stride, weights, eps, D: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * row_stride
    out += row * D
    weight += row % weights * D
    squares = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, D, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        wide = tl.load(x + at * stride, at < D, other=0.0).to(tl.float32)
        squares += wide * wide
    scale = tl.rsqrt(tl.sum(squares) / D + eps)
    for begin in range(0, D, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        wide = tl.load(x + at * stride, at < D, other=0.0).to(tl.float32)
        scaled = wide * scale * tl.load(weight + at, at < D, other=0.0).to(tl.float32)
        tl.store(out + at, scaled.to(out.dtype.element_ty), at < D)
