"""Short convolutions between two gates, out = c · conv(b · x): a window is all the state that they have."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import ROWS, launch_options, start_next, wait_for_previous
from spec_kernels.gpu.windows import Links, convolve

BLOCK = 512
"""Channels of a program."""


def convolve_gated(u: Tensor, c: Tensor, conv: Tensor, windows: Tensor, links: Links, out: Tensor) -> None:
    """out = c · conv(u) for R rows.

    u: [P, C], inputs of the convolution. c: [P, C]. conv: float32 [W, C], the current input's weight last.
    windows: float32 [*, W - 1, C], from place 0 on. links: of R rows. out: [P, C].
    """
    count, (width, channels) = len(links.parents), conv.shape
    block = min(BLOCK, triton.next_power_of_2(channels))
    _convolve_gated[triton.cdiv(count, ROWS), triton.cdiv(channels, block)](
        u, c, conv, windows, links.parents, links.source, out, count, u.stride(0), c.stride(0), out.stride(0),
        channels, width, block, ROWS, **launch_options(4),
    )  # fmt: skip


@triton.jit
def _convolve_gated(
    u, c, conv, windows, parents, source, out, count, u_stride, c_stride, out_stride,
    C: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """BLOCK channels of ROWS rows."""
    start_next(DEPENDENT)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists, real = row < count, at < C
    wait_for_previous(DEPENDENT)
    value = convolve(u, conv, windows, parents, source, row, exists, at, real, u_stride, C, W, BLOCK, ROWS, 1)
    there = exists[:, None] & real[None, :]
    gate = tl.load(c + (row * c_stride)[:, None] + at[None, :], there, other=0.0).to(tl.float32)
    tl.store(out + (row * out_stride)[:, None] + at[None, :], (gate * value).to(out.dtype.element_ty), there)
