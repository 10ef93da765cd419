"""The causal convolution in torch against a walk along ancestors, over chains, trees and ragged batches."""

from __future__ import annotations

import torch
from spec_kernels.ops.causal_conv import causal_conv
from spec_kernels.ops.lineage import Lineage

from tests.support.recurrences import chain, ragged_lineage

N, WIDTH, CHANNELS = 9, 4, 96


def convolve(x: torch.Tensor, weight: torch.Tensor, windows: torch.Tensor, lineage: Lineage, row: int) -> tuple:
    """(y, window after) of a row by walking its ancestors, in float64."""
    path, at = [], row
    while at >= 0:
        path.append(x[at])
        at = lineage.parents[at]
    past = torch.cat([windows[lineage.source[row]], torch.stack(path[::-1])]).double()
    return (past[-WIDTH:] * weight.double()).sum(0), past[-WIDTH + 1 :]


def test_the_convolution_follows_ancestors_and_keeps_windows() -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(11, CHANNELS, generator=generator), torch.randn(WIDTH, CHANNELS, generator=generator)
    windows = torch.randn(N, WIDTH - 1, CHANNELS, generator=generator)
    lineage, before = ragged_lineage((3, 4, 5, 6, 7)), windows.clone()
    y = causal_conv(x, weight, windows, lineage)
    for row, place in enumerate(lineage.keep):
        expected, window = convolve(x, weight, before, lineage, row)
        assert (y[row] - expected).abs().max() < 1e-5
        if place >= 0:
            assert torch.equal(windows[place].double(), window)


def test_a_convolved_row_has_the_same_bits_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(5, CHANNELS, generator=generator), torch.randn(WIDTH, CHANNELS, generator=generator)
    windows = torch.randn(N, WIDTH - 1, CHANNELS, generator=generator)
    alone = windows.clone()
    y = causal_conv(x, weight, windows, chain(5))
    for row in range(5):
        single = causal_conv(x[row : row + 1], weight, alone, chain(1))
        assert torch.equal(single[0], y[row])
    assert torch.equal(alone, windows)
