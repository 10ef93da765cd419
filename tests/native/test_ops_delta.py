"""The gated delta rule, the scan of Mamba-2, their convolution and traces: against a loop in float64, and the same bits
however cut."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from ops_library import Conv, Delta, P, at, cuts, each_isa, here, ints, library, memory, same, table
from spec_kernels.ops.causal_conv import causal_conv
from spec_kernels.ops.gated_delta import gated_delta, scan
from spec_kernels.ops.lineage import Lineage

pytestmark = pytest.mark.compiles

SHAPES = [(2, 6, 32, 32), (1, 2, 128, 128), (2, 4, 20, 72), (3, 3, 7, 5), (1, 1, 16, 100)]
"""Key heads, value heads, key dimensions, value dimensions."""
PLACES, WIDTH = 12, 4
DELTA, CHANNELS, SCAN = KINDS = "delta", "channels", "scan"
"""The delta rule with a decay of each head or of each channel, and the scan."""


@dataclass
class Layer:
    """Inputs of n rows and states, by the same seed the same. g: [n, Hv], or [n, Hv, Dk] per channel."""

    rows: int
    shape: tuple = SHAPES[0]
    kind: str = DELTA
    seed: int = 0
    inputs: dict = field(init=False)
    states: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        draw = np.random.default_rng(self.seed)
        hk, hv, dk, dv = self.shape
        q, k = (m / np.linalg.norm(m, axis=-1, keepdims=True) for m in draw.standard_normal((2, self.rows, hk, dk)))
        v, beta = draw.standard_normal((self.rows, hv, dv)), draw.random((self.rows, hv))
        g = -3 * draw.random((self.rows, hv, dk) if self.kind == CHANNELS else (self.rows, hv))
        given = {"q": q * dk**-0.5, "k": k, "v": v, "g": g, "beta": beta}
        self.inputs = {name: np.ascontiguousarray(m, dtype=np.float32) for name, m in given.items()}
        self.states = draw.standard_normal((PLACES, hv, dk, dv)).astype(np.float32)
        self.skip = draw.standard_normal(hv).astype(np.float32)

    @property
    def key_of(self) -> np.ndarray:
        return ints([h % self.shape[0] for h in range(self.shape[1])])

    def tokens(self, rows: Sequence[int]) -> Layer:
        """Some of the rows, with the same states."""
        chain = replace(self, rows=len(rows))
        chain.inputs = {name: np.ascontiguousarray(m[list(rows)]) for name, m in self.inputs.items()}
        chain.states, chain.skip = self.states.copy(), self.skip
        return chain

    def run(self, isa: str, lineage: Lineage, heads: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """o, d; states are written."""
        _, hv, dk, dv = self.shape
        mixed = np.concatenate([self.inputs[name].reshape(self.rows, -1) for name in "qkv"], axis=1)
        o, d = np.full((2, self.rows, hv, dv), np.nan, np.float32)
        a, kept = self.c(mixed, lineage, o, d)
        for first, end in lineage.ends():
            slots = library().spec_delta_plan(P(at(kept[0])), P(at(kept[2])), first, end - first, P(at(kept[3])))
            scratch = memory(library().spec_delta_scratch(dk, slots))
            for head in heads or range(hv):
                scratch[:] = 0xFF
                table(isa).delta(ctypes.byref(a), first, end - first, head, at(scratch))
        return o, d

    def replay(self, isa: str, d: np.ndarray, path: Sequence[int], source: int, target: int) -> None:
        mixed = np.concatenate([self.inputs[name].reshape(self.rows, -1) for name in "qkv"], axis=1)
        a, _kept = self.c(mixed, chain(self.rows), d, d)
        rows = ints(path)
        for head in range(self.shape[1]):
            table(isa).replay(ctypes.byref(a), at(rows), len(rows), source, target, head)

    def c(self, mixed: np.ndarray, lineage: Lineage, o: np.ndarray, d: np.ndarray) -> tuple[ctypes.Structure, list]:
        hk, hv, dk, dv = self.shape
        g, beta, key_of = self.inputs["g"], self.inputs["beta"], self.key_of
        kept = [ints(lineage.parents), ints(lineage.source), ints(lineage.keep), ints([7] * self.rows), key_of]
        q = at(mixed)
        return (
            Delta(
                *self.shape,
                dk if self.kind == CHANNELS else 1,
                *(q, q + 4 * hk * dk, q + 8 * hk * dk, at(g), at(beta)),
                *(mixed.shape[1], g[0].size, hv),
                *(at(o), at(d), hv * dv, hv * dv, at(self.states)),
                *(at(m) for m in (key_of, *kept[:4])),
                at(self.skip) if self.kind == SCAN else None,
            ),
            kept,
        )

    def loop(self, lineage: Lineage) -> tuple[np.ndarray, dict]:
        """The definition, in float64: (o, {row: state after it})."""
        q, k, v, g, beta = (m.astype(np.float64) for m in self.inputs.values())
        after, out = {}, []
        for r in range(lineage.rows):
            parent = lineage.parents[r]
            state = after[parent] if parent >= 0 else self.states[lineage.source[r]].astype(np.float64)
            decay = np.exp(g[r])[..., None] if self.kind == CHANNELS else np.exp(g[r])[:, None, None]
            state = state * decay
            key, query = k[r, self.key_of], q[r, self.key_of]
            recalled = 0 if self.kind == SCAN else np.einsum("hkv,hk->hv", state, key)
            d = beta[r][:, None] * (v[r] - recalled)
            after[r] = state + key[..., None] * d[:, None]
            skipped = self.skip[:, None] * v[r] if self.kind == SCAN else 0
            out.append(np.einsum("hkv,hk->hv", after[r], query) + skipped)
        return np.stack(out), after


def chain(rows: int, keep: int = 0, source: int = 0) -> Lineage:
    return Lineage(list(range(-1, rows - 1)), [source] * rows, [-1] * (rows - 1) + [keep], [0])


def ragged_lineage() -> Lineage:
    """A chain that keeps its pending rows, a tree whose first drafts are kept, and one row alone."""
    return Lineage(
        parents=[-1, 0, 1, 2, -1, 4, 4, 5, 5, 6, -1],
        source=[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2],
        keep=[-1, 0, -1, -1, 1, 3, 4, -1, 5, -1, 2],
        begins=[0, 4, 10],
    )


def random_lineage(rows: int, draw: np.random.Generator) -> Lineage:
    """A tree with pending rows; the last pending row keeps into its source, drafts keep into places or nowhere."""
    pending = int(draw.integers(1, rows + 1))
    parents = [*range(-1, pending - 1), *(int(draw.integers(pending - 1, i)) for i in range(pending, rows))]
    places = [3 + i if i < PLACES - 3 and draw.random() < 0.6 else -1 for i in range(rows - pending)]
    return Lineage(parents, [0] * rows, [-1] * (pending - 1) + [0, *places], [0])


def path_to(lineage: Lineage, row: int) -> list[int]:
    path = []
    while row >= 0:
        path.append(row)
        row = lineage.parents[row]
    return path[::-1]


@each_isa
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_and_every_kept_state_is_that_of_the_loop(isa, shape, kind):
    lineage, layer = ragged_lineage(), Layer(11, shape, kind)
    expected, after = layer.loop(lineage)
    before = layer.states.copy()

    o, d = layer.run(isa, lineage)

    assert np.abs(o - expected).max() < 3e-6
    for row, place in enumerate(lineage.keep):
        if place >= 0:
            assert np.abs(layer.states[place] - after[row]).max() < 3e-6
    others = [i for i in range(PLACES) if i not in lineage.keep]
    assert same(layer.states[others], before[others])
    inputs = {name: torch.tensor(m) for name, m in layer.inputs.items()}
    rule, heads = scan if kind == SCAN else gated_delta, torch.tensor(layer.key_of).long()
    ours = rule(**inputs, states=torch.tensor(before), lineage=lineage, key_of=heads)
    assert np.abs(d - ours[1].numpy()).max() < 3e-6


@each_isa
@pytest.mark.parametrize("seed", range(12))
def test_every_path_of_a_tree_has_the_bits_of_token_by_token(isa, seed):
    draw = np.random.default_rng(seed)
    rows = int(draw.integers(2, 24))
    lineage = random_lineage(rows, draw)
    layer = Layer(rows, SHAPES[seed % len(SHAPES)], KINDS[seed % len(KINDS)], seed)
    start = layer.states.copy()

    o, d = layer.run(isa, lineage)

    for leaf in set(range(rows)) - set(lineage.parents):
        path = path_to(lineage, leaf)
        alone = layer.tokens(path)
        alone.states[0] = start[0]
        for i, row in enumerate(path):
            one = alone.tokens([i])
            expected = one.run(isa, chain(1))
            alone.states = one.states
            assert same(o[[row]], expected[0])
            assert same(d[[row]], expected[1])
            if lineage.keep[row] >= 0:
                assert same(layer.states[lineage.keep[row]], alone.states[0])


@each_isa
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cut_anyhow_leaves_the_same_state(isa, kind):
    draw, whole = np.random.default_rng(0), Layer(90, kind=kind)
    pieces, outs = whole.tokens(range(90)), []
    o, _ = whole.run(isa, chain(90))
    for first, n in cuts(90, draw):
        piece = pieces.tokens(range(first, first + n))
        outs.append(piece.run(isa, chain(n))[0])
        pieces.states = piece.states

    assert same(o, np.concatenate(outs))
    assert same(whole.states, pieces.states)


@each_isa
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_replaying_a_path_gives_the_state_that_would_have_been_kept(isa, shape, kind):
    lineage, layer = ragged_lineage(), Layer(11, shape, kind)
    lineage, start = replace(lineage, keep=[-1] * 8 + [7, -1, -1]), layer.states[1].copy()
    _, d = layer.run(isa, lineage)

    layer.replay(isa, d, path_to(lineage, 8), 1, 1)

    assert same(layer.states[1], layer.states[7])
    layer.states[1] = start
    layer.replay(isa, d, path_to(lineage, 8), 1, 10)
    assert same(layer.states[10], layer.states[7])
    assert same(layer.states[1], start)
    layer.replay(isa, d, [], 7, 9)
    assert same(layer.states[9], layer.states[7])


@each_isa
def test_a_row_that_is_not_finite_does_not_reach_its_siblings(isa):
    lineage, layer, clean = ragged_lineage(), Layer(11), Layer(11)
    layer.inputs["v"][[2, 7, 9]] = np.nan
    hit = [2, 3, 7, 9]

    got, expected = (m.run(isa, lineage)[0] for m in (layer, clean))

    assert np.isnan(got[hit]).all()
    rest = [i for i in range(11) if i not in hit]
    assert same(got[rest], expected[rest])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_instruction_sets_give_the_same_states(shape, kind):
    results = []
    for isa in here():
        layer = Layer(11, shape, kind)
        results.append((*layer.run(isa, ragged_lineage()), layer.states))

    for other in results[1:]:
        assert all(same(a, b) for a, b in zip(results[0], other, strict=True))


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
