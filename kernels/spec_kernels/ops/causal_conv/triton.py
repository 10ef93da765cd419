"""Depthwise causal convolution; every row walks up to its own ancestors."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.ops.lineage import Lineage

CHANNELS = 512
"""Channels of one program."""


def causal_conv(x: Tensor, weight: Tensor, windows: Tensor, lineage: Lineage) -> Tensor:
    """y_t = Σ_j weight[j] · x_(t - W + 1 + j), per channel, along each row's ancestors.

    x: float32 [R, C]    weight: float32 [W, C], the current input's last
    windows: float32 [N, W - 1, C], the inputs before a sequence's first row, oldest first; those that ``lineage``
        keeps are overwritten with the window after their row
    returns float32 [R, C]; a row's result depends on its ancestors only, bit for bit
    """
    rows, channels = x.shape
    out = torch.empty(rows, channels, dtype=x.dtype, device=x.device)
    if not rows:
        return out
    places, member = _sequences(lineage, x.device)
    # A window may be overwritten while others still look at it.
    before = windows.index_select(0, places)
    _conv[rows, triton.cdiv(channels, CHANNELS)](
        x, weight.contiguous(), before, windows, out,
        lineage.tensor("parents", x.device), member, lineage.tensor("keep", x.device),
        *x.stride(), *windows.stride(), channels, len(weight), CHANNELS,
    )  # fmt: skip
    return out


@functools.lru_cache(maxsize=8)
def _sequences(lineage: Lineage, device: torch.device) -> tuple[Tensor, Tensor]:
    """int64 [B], the window that each sequence begins with, and int64 [R], the sequence of each row."""
    places = [lineage.source[first] for first in lineage.begins]
    member = [i for i, (first, end) in enumerate(lineage.ends()) for _ in range(first, end)]
    on_device = [torch.tensor(m, dtype=torch.int64).to(device) for m in (places, member)]
    return on_device[0], on_device[1]


@triton.jit
def _conv(
    x, weight, before, windows, out, parents, member, keep,
    x_row, x_channel, window_place, window_input, window_channel,
    C: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = at < C
    place, memory = tl.load(keep + row), before + tl.load(member + row) * (W - 1) * C
    total = tl.zeros([BLOCK], tl.float32)
    # From the current input back: rows as long as there is a parent, then the window from its end.
    seen = row
    left = W - 2
    for back in tl.static_range(W):
        inside = seen >= 0
        value = tl.load(x + seen * x_row + at * x_channel, real & inside, other=0.0)
        value += tl.load(memory + left * C + at, real & (seen < 0), other=0.0)
        total += value * tl.load(weight + (W - 1 - back) * C + at, real, other=0.0)
        if back < W - 1:
            kept = windows + place * window_place + (W - 2 - back) * window_input + at * window_channel
            tl.store(kept, value, real & (place >= 0))
        left -= tl.where(inside, 0, 1)
        seen = tl.load(parents + seen, inside, other=-1)
    tl.store(out + row * C + at, total, real)
