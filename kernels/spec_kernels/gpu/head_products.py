"""Products with a matrix of every head, out = [a | W_h b] of heads [a | b]: what latent attention is made of."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import exact_precision, launch_options, start_next, wait_for_previous

OUTPUTS, INPUTS, ROWS = 64, 64, 16
"""Of a tile."""


def multiply_heads(x: Tensor, weights: Tensor, kept: int, out: Tensor) -> None:
    """out[r, h] = [x[r, h, :kept] | W_h x[r, h, kept:]]

    x: [R, H, kept + k]. weights: [H, n, k], of the type of x. out: [R, H, kept + n].
    """
    rows, heads, _ = x.shape
    _, n, k = weights.shape
    _multiply_heads[heads, triton.cdiv(n, OUTPUTS), triton.cdiv(rows, ROWS)](
        x, weights, out, rows, x.stride(0), out.stride(0), kept, n, k, OUTPUTS, INPUTS, ROWS,
        max(16, triton.next_power_of_2(kept)), exact_precision(x.dtype), **launch_options(4, fuse=False),
    )  # fmt: skip


@triton.jit
def _multiply_heads(
    x, weights, out, count, x_stride, out_stride, KEPT: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr, KEPT_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """OUTPUTS numbers of one head of ROWS rows; the first program of a head copies what is kept, too."""
    start_next(DEPENDENT)
    head, tile = tl.program_id(0), tl.program_id(1)
    row = (tl.program_id(2) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    output, column = tile * OUTPUTS + tl.arange(0, OUTPUTS), tl.arange(0, INPUTS)
    exists = row < count
    x_at, out_at = x + row * x_stride + head * (KEPT + K), out + row * out_stride + head * (KEPT + N)
    w_at = weights + (head.to(tl.int64) * N + output)[:, None] * K
    wait_for_previous(DEPENDENT)
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for first in range(0, K, INPUTS):
        there = first + column < K
        w = tl.load(w_at + (first + column)[None, :], (output < N)[:, None] & there[None, :], other=0.0)
        values = tl.load(x_at[None, :] + KEPT + (first + column)[:, None], exists[None, :] & there[:, None], other=0.0)
        total = tl.dot(w, values, total, input_precision=PRECISION)
    to = out_at[None, :] + KEPT + output[:, None]
    tl.store(to, total.to(out.dtype.element_ty), (output < N)[:, None] & exists[None, :])
    if (KEPT > 0) & (tile == 0):
        kept = tl.arange(0, KEPT_BLOCK)
        real = exists[:, None] & (kept < KEPT)[None, :]
        numbers = tl.load(x_at[:, None] + kept[None, :], real, other=0.0)
        tl.store(out_at[:, None] + kept[None, :], numbers, real)
