"""Decays, convolutions and traces of recurrent layers: against formulas in float64, and the same bits however cut.

The recurrences themselves: tests/kernels/test_recurrences.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from ops_library import Conv, P, at, cuts, each_isa, ints, library, memory, same, table
from spec_kernels.ops.causal_conv import causal_conv
from spec_kernels.ops.lineage import Lineage

from tests.support.recurrences import PLACES, chain, path_to, ragged_lineage

pytestmark = pytest.mark.compiles
WIDTH = 4


def test_a_chain_needs_one_slot_and_a_row_alone_none():
    def slots(lineage: Lineage) -> int:
        arrays = [ints(m) for m in (lineage.parents, lineage.keep, [0] * lineage.rows)]
        return library().spec_delta_plan(P(at(arrays[0])), P(at(arrays[1])), 0, lineage.rows, P(at(arrays[2])))

    assert slots(chain(1)) == 0
    assert slots(chain(9)) == 1
    assert slots(Lineage([-1, 0, 0, 1, 2], [0] * 5, [-1] * 5, [0])) == 2


@each_isa
def test_decays_and_write_strengths_are_formulas(isa):
    rows, heads = 5, 19
    draw = np.random.default_rng(0)
    for decays in (heads, 3 * heads):
        alpha, b = ((5 * draw.standard_normal((rows, n))).astype(np.float32) for n in (decays, heads))
        rate, dt = -draw.random(decays).astype(np.float32), draw.standard_normal(decays).astype(np.float32)
        both = np.empty((rows, decays + heads), np.float32)
        out = at(both), at(both) + 4 * decays, decays + heads
        table(isa).decay(at(alpha), decays, at(b), heads, at(rate), at(dt), 0.0, rows, decays, heads, *out)

        g, beta = both[:, :decays], both[:, decays:]
        np.testing.assert_allclose(g, rate * np.logaddexp(0, alpha.astype(np.float64) + dt), rtol=2e-6)
        np.testing.assert_allclose(beta, 1 / (1 + np.exp(-b.astype(np.float64))), rtol=1e-6)


@each_isa
@pytest.mark.parametrize("floor", [-5.0, -0.3])
def test_decays_with_a_lowest_value_are_formulas(isa, floor):
    rows, decays, draw = 5, 37, np.random.default_rng(1)
    alpha, b = ((5 * draw.standard_normal((rows, n))).astype(np.float32) for n in (decays, 3))
    rate, dt = -draw.random(decays).astype(np.float32), draw.standard_normal(decays).astype(np.float32)
    both = np.empty((rows, decays + 3), np.float32)
    out = at(both), at(both) + 4 * decays, decays + 3
    table(isa).decay(at(alpha), decays, at(b), 3, at(rate), at(dt), floor, rows, decays, 3, *out)

    steps = -rate * (alpha.astype(np.float64) + dt)
    np.testing.assert_allclose(both[:, :decays], floor / (1 + np.exp(-steps)), rtol=2e-6)
    assert both[:, :decays].min() >= floor


@each_isa
def test_without_write_strengths_the_steps_are_in_their_place(isa):
    rows, heads, draw = 5, 19, np.random.default_rng(0)
    alpha, dt = (draw.standard_normal(n).astype(np.float32) for n in ((rows, heads), heads))
    both, rate = np.empty((rows, 2 * heads), np.float32), -draw.random(heads).astype(np.float32)
    out = at(both), at(both) + 4 * heads, 2 * heads
    table(isa).decay(at(alpha), heads, None, 0, at(rate), at(dt), 0.0, rows, heads, heads, *out)

    steps = np.logaddexp(0, alpha.astype(np.float64) + dt)
    np.testing.assert_allclose(both, np.concatenate([rate * steps, steps], 1), rtol=2e-6)


@dataclass
class Convolution:
    rows: int
    channels: int = 40
    width: int = WIDTH
    gated: bool = False
    biased: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        draw = np.random.default_rng(self.seed)
        shapes = {
            "x": (self.rows, self.channels),
            "gate": (self.rows, self.channels),
            "weight": (self.width, self.channels),
            "windows": (PLACES, self.width - 1, self.channels),
            "bias": (self.channels,),
        }
        for name, shape in shapes.items():
            setattr(self, name, draw.standard_normal(shape).astype(np.float32))

    def run(self, isa: str, lineage: Lineage, parts: Sequence[tuple[int, int]] | None = None) -> np.ndarray:
        out = np.full_like(self.x, np.nan)
        a, _kept = self.c(lineage, out)
        for first, end in lineage.ends():
            for channel, n in parts or [(0, self.channels)]:
                scratch = memory(library().spec_conv_scratch(self.width, n))
                table(isa).conv(ctypes.byref(a), first, end - first, channel, n, at(scratch))
        return out

    def slide(self, isa: str, path: Sequence[int], source: int, target: int) -> None:
        a, _kept = self.c(chain(self.rows), self.x)
        rows = ints(path)
        table(isa).slide(ctypes.byref(a), at(rows), len(rows), source, target)

    def c(self, lineage: Lineage, out: np.ndarray) -> tuple[ctypes.Structure, list]:
        kept = [ints(m) for m in (lineage.parents, lineage.source, lineage.keep)]
        c, gate = self.channels, at(self.gate) if self.gated else None
        inputs = at(self.x), c, gate, c, at(self.weight), at(self.windows)
        return Conv(c, self.width, *inputs, at(out), c, *map(at, kept), at(self.bias) if self.biased else None), kept


@each_isa
@pytest.mark.parametrize("channels, width", [(40, 4), (7, 2), (64, 1), (133, 5)])
@pytest.mark.parametrize("gated, biased", [(False, False), (False, True), (True, False)])
def test_the_convolution_and_its_windows_are_the_reference(isa, channels, width, gated, biased):
    lineage, conv = ragged_lineage(), Convolution(11, channels, width, gated, biased)
    windows = torch.tensor(conv.windows).double()
    y = causal_conv(torch.tensor(conv.x).double(), torch.tensor(conv.weight).double(), windows, lineage)

    out = conv.run(isa, lineage)

    y = y + torch.tensor(conv.bias) if biased else y
    expected = torch.tensor(conv.gate) * y if gated else torch.nn.functional.silu(y)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-5, atol=2e-6)
    assert same(conv.windows, windows.float().numpy())


@each_isa
def test_channels_and_rows_of_a_convolution_may_be_cut_anyhow(isa):
    draw = np.random.default_rng(0)
    whole, channels, pieces = Convolution(30), Convolution(30), Convolution(30)
    expected, outs = whole.run(isa, chain(30)), []
    assert same(channels.run(isa, chain(30), list(cuts(40, draw))), expected)
    assert same(channels.windows, whole.windows)
    for first, n in cuts(30, draw):
        piece = Convolution(n)
        piece.x, piece.weight, piece.windows = pieces.x[first : first + n].copy(), pieces.weight, pieces.windows
        outs.append(piece.run(isa, chain(n)))
        pieces.windows = piece.windows
    assert same(expected, np.concatenate(outs))
    assert same(pieces.windows, whole.windows)


@each_isa
@pytest.mark.parametrize("row", [4, 5, 8, 9])
@pytest.mark.parametrize("width", [1, 2, 4, 7])
def test_a_window_slid_along_a_path_is_the_one_that_would_have_been_kept(isa, row, width):
    lineage, conv = ragged_lineage(), Convolution(11, width=width)
    keep = [7 if i == row else -1 for i in range(11)]
    conv.run(isa, Lineage(lineage.parents, lineage.source, keep, lineage.begins))

    conv.slide(isa, path_to(lineage, row), 1, 1)

    assert same(conv.windows[1], conv.windows[7])
