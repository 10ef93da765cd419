"""Depthwise causal convolution over the last few inputs of each row's own past."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.ops.lineage import Lineage


def causal_conv(x: Tensor, weight: Tensor, windows: Tensor, lineage: Lineage) -> Tensor:
    """y_t = Σ_j weight[j] · x_(t - W + 1 + j), per channel, along each row's ancestors.

    x: float32 [R, C]    weight: float32 [W, C], the current input's last
    windows: float32 [N, W - 1, C], the inputs before a sequence's first row, oldest first; the ones that
        ``lineage`` keeps are overwritten with the window after their row
    returns float32 [R, C]; a row's result depends on its ancestors only, bit for bit
    """
    width = len(weight)
    full = torch.cat([m for first, end in lineage.ends() for m in (windows[lineage.source[first]], x[first:end])])
    taps = _slices(full, width) if lineage.chain else [full[index] for index in lineage.taps(width)]
    y = taps[0] * weight[0]
    for tap, w in zip(taps[1:], weight[1:], strict=True):
        y.addcmul_(tap, w)
    for row, place in enumerate(lineage.keep):
        if place >= 0:
            windows[place] = window_after(full, row, width, lineage)
    return y


def _slices(full: Tensor, width: int) -> list[Tensor]:
    rows = len(full) - width + 1
    return [full[j : j + rows] for j in range(width)]


def window_after(full: Tensor, row: int, width: int, lineage: Lineage) -> Tensor:
    """[W - 1, C]: what the rows that continue ``row`` look back on."""
    return full[row + 1 : row + width] if lineage.chain else full[lineage.taps(width)[1:, row]]
