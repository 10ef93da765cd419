"""Causal convolutions over the rows of a sequence in a step, whose numbers may depend on the row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous
from spec_kernels.gpu.layout import FIELDS

BLOCK = 512
"""Channels of a program."""


def convolve_block(rows: Tensor, x: Tensor, kernel: Tensor | None, base: Tensor, out: Tensor) -> None:
    """out[r] = Σ_t x[r - t] · (base[t] + kernel[r, t, group of the channel]) over earlier rows of the same text.

    rows: int32 [R, FIELDS], see ``layout``; a text's rows lie together and are a chain. x, out: [P, C]. kernel: [P, T ·
    G], G equal parts of the channels, or None. base: float32 [T, C].
    """
    count, (taps, channels) = len(rows), base.shape
    block = min(BLOCK, triton.next_power_of_2(channels))
    groups = 1 if kernel is None else kernel.shape[1] // taps
    _convolve_block[count, triton.cdiv(channels, block)](
        rows, x, x if kernel is None else kernel, base, out, x.stride(0), 0 if kernel is None else kernel.stride(0),
        out.stride(0), channels, taps, groups, kernel is not None, FIELDS, block, **launch_options(4),
    )  # fmt: skip


@triton.jit
def _convolve_block(
    rows, x, kernel, base, out, x_stride, kernel_stride, out_stride, C: tl.constexpr, T: tl.constexpr,
    GROUPS: tl.constexpr, ADDED: tl.constexpr, FIELDS: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of one row. A row of the same text is the one before if its place is."""
    start_next(DEPENDENT)
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = at < C
    line, place = tl.load(rows + row * FIELDS + 1), tl.load(rows + row * FIELDS + 3)
    wait_for_previous(DEPENDENT)
    total = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(T):
        before = tl.maximum(row - tap, 0)
        same = (tl.load(rows + before * FIELDS + 1) == line) & (tl.load(rows + before * FIELDS + 3) == place - tap)
        there = real & same & (row >= tap)
        factor = tl.load(base + tap * C + at, real, other=0.0)
        if ADDED:
            group = at // (C // GROUPS)
            factor += tl.load(kernel + row.to(tl.int64) * kernel_stride + tap * GROUPS + group, real, other=0.0)
        total += tl.load(x + before.to(tl.int64) * x_stride + at, there, other=0.0).to(tl.float32) * factor
    tl.store(out + row.to(tl.int64) * out_stride + at, total.to(out.dtype.element_ty), real)
