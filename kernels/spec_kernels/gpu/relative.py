"""x + |x| · y of whole rows, where |x| is the root of the mean square of x."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import ROWS, launch_options, start_next, wait_for_previous


def add_relative(x: Tensor, y: Tensor, out: Tensor) -> None:
    """x, y: [R, W], may be strided. out: [R, W]."""
    rows, width = out.shape
    block = triton.next_power_of_2(width)
    _add_relative[triton.cdiv(rows, ROWS), 1](
        x, y, out, rows, x.stride(0), y.stride(0), out.stride(0), width, block, ROWS,
        **launch_options(max(1, min(16, block // 256))),
    )  # fmt: skip


@triton.jit
def _add_relative(
    x, y, out, count, x_stride, y_stride, out_stride, W: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    row, column = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.arange(0, BLOCK)
    real = (row < count)[:, None] & (column < W)[None, :]
    wait_for_previous(DEPENDENT)
    value = tl.load(x + row[:, None] * x_stride + column[None, :], real, other=0.0).to(tl.float32)
    added = tl.load(y + row[:, None] * y_stride + column[None, :], real, other=0.0).to(tl.float32)
    size = tl.sqrt(tl.sum(value * value, 1) / W)[:, None]
    tl.store(out + row[:, None] * out_stride + column[None, :], (value + size * added).to(out.dtype.element_ty), real)
