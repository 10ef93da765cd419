"""Recurrences of the gated delta rule and of Mamba-2 on every executor: a loop in float64, and equal bits however cut.

Native kernels of all instruction sets, torch, and kernels of a GPU, which run in triton's interpreter where there is
none.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from spec_kernels.ops.gated_delta import CHUNK, replay_rows
from spec_kernels.ops.lineage import Lineage

from tests.native.ops_library import ISAS, cuts, here, same
from tests.support.recurrences import (
    CHANNELS,
    DELTA,
    DEVICE,
    KINDS,
    PLACES,
    SCAN,
    SHAPES,
    Layer,
    Run,
    chain,
    path_to,
    ragged_lineage,
    random_lineage,
    replay_native,
    run_gpu,
    run_native,
    run_torch,
    with_runs,
)

RUNS: dict[str, Run] = {isa: partial(run_native, isa) for isa in ISAS} | {"torch": run_torch, "gpu": run_gpu}
RATIO = 2e-6 if DEVICE.type == "cpu" else 1e-5
"""Max root mean square difference: a device's exponential of x is off by about 2**-22 + |x| / 2**24 of its size."""
NATIVE = [pytest.param(isa, marks=pytest.mark.compiles) for isa in ISAS]
EXECUTORS = [*NATIVE, "torch", "gpu"]
SMALL = (1, 2, 20, 10)
KEPT, ASIDE = (3, 4, 5, 6, 7), (-1,) * 5
"""Places of all drafts, and of none: states between rows are laid aside."""
CASES = {
    "one row": (chain(1), {}),
    "chain": (chain(3), {"shape": (2, 4, 20, 10), "grouped": True}),
    "kept": (ragged_lineage(KEPT), {"shape": (2, 4, 20, 10)}),
    "kept, by channel": (ragged_lineage(KEPT), {"shape": (2, 4, 20, 10), "grouped": True, "kind": CHANNELS}),
    "laid aside": (ragged_lineage(ASIDE), {}),
    "runs": (with_runs(), {}),
    "runs by channel": (with_runs(), {"kind": CHANNELS}),
    "long runs": (chain(2 * CHUNK + 5, runs=((3, CHUNK), (3 + CHUNK, CHUNK))), {"shape": (2, 4, 20, 10)}),
    "scan of one row": (chain(1), {"kind": SCAN}),
    "scan, kept": (ragged_lineage(KEPT), {"shape": (2, 4, 20, 10), "kind": SCAN}),
    "scan, laid aside": (ragged_lineage(ASIDE), {"shape": (2, 4, 20, 10), "grouped": True, "kind": SCAN}),
    "scan of runs": (with_runs(), {"kind": SCAN}),
}


@pytest.fixture(autouse=True)
def triton(request):
    if "gpu" in getattr(request.node, "callspec", request.node).__dict__.get("params", {}).values():
        pytest.importorskip("triton", reason="triton is not installed")


def check_rows(executor: str, layer: Layer, lineage: Lineage) -> None:
    """Assert that every row and every kept state is that of the loop, and that other states stay."""
    (o, d, after), before = layer.loop(lineage), layer.states.copy()

    results = RUNS[executor](layer, lineage)

    kept = [row for row, place in enumerate(lineage.keep) if place >= 0]
    states, expected = layer.states[[lineage.keep[row] for row in kept]], np.stack([after[row] for row in kept])
    for got, exact in zip((*results, states), (o, d, expected), strict=True):
        if executor == "gpu":
            assert np.linalg.norm(got - exact) <= RATIO * np.linalg.norm(exact)
        else:
            assert np.abs(got - exact).max() < (1e-5 if lineage.chunks else 3e-6)
    others = [i for i in range(PLACES) if i not in lineage.keep]
    assert same(layer.states[others], before[others])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", CASES)
def test_every_row_and_every_kept_state_is_that_of_the_loop(executor, name):
    lineage, how = CASES[name]
    check_rows(executor, Layer(lineage.rows, **{"shape": SMALL, **how}), lineage)


@pytest.mark.parametrize("executor", [*NATIVE, "torch"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_states_is_computed(executor, shape, kind):
    check_rows(executor, Layer(11, shape, kind), ragged_lineage())


SEEDS = [*((isa, seed) for isa in ISAS for seed in range(12)), *(("torch", seed) for seed in range(6))]


@pytest.mark.parametrize("executor, seed", [*SEEDS, ("gpu", 0), ("gpu", 1), ("gpu", 2)])
def test_every_path_of_a_tree_has_the_bits_of_token_by_token(executor, seed):
    draw, run = np.random.default_rng(seed), RUNS[executor]
    rows = int(draw.integers(2, 24 if executor != "gpu" else 10))
    lineage = random_lineage(rows, draw)
    layer = Layer(rows, SHAPES[seed % 5] if executor != "gpu" else SMALL, KINDS[seed % len(KINDS)], seed)
    start = layer.states.copy()

    o, d = run(layer, lineage)

    for leaf in set(range(rows)) - set(lineage.parents):
        path = path_to(lineage, leaf)
        alone = layer.tokens(path)
        alone.states[0] = start[0]
        for i, row in enumerate(path):
            one = alone.tokens([i])
            expected = run(one, chain(1))
            alone.states = one.states
            assert same(o[[row]], expected[0])
            assert same(d[[row]], expected[1])
            if lineage.keep[row] >= 0:
                assert same(layer.states[lineage.keep[row]], alone.states[0])


@pytest.mark.parametrize("executor", [*NATIVE, "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cut_anyhow_leaves_the_same_state(executor, kind):
    draw, whole, run = np.random.default_rng(0), Layer(90, kind=kind), RUNS[executor]
    pieces, outs = whole.tokens(range(90)), []
    o, _ = run(whole, chain(90))
    for first, n in cuts(90, draw):
        piece = pieces.tokens(range(first, first + n))
        outs.append(run(piece, chain(n))[0])
        pieces.states = piece.states

    assert same(o, np.concatenate(outs))
    assert same(whole.states, pieces.states)


def replay_torch(layer: Layer, d: np.ndarray, path: list[int], source: int, target: int) -> None:
    states, k, g, key_of = map(torch.from_numpy, (layer.states, layer.inputs["k"], layer.inputs["g"], layer.key_of))
    replay_rows(states, k, torch.from_numpy(d), g, key_of.long(), path, source, target)


@pytest.mark.parametrize("executor", [*NATIVE, "torch"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_replaying_a_path_gives_the_state_that_would_have_been_kept(executor, shape, kind):
    lineage, layer = ragged_lineage((-1, -1, -1, 7, -1)), Layer(11, shape, kind)
    path, start = path_to(lineage, 8)[1:], layer.states[1].copy()
    replay = replay_torch if executor == "torch" else partial(replay_native, executor)
    _, d = RUNS[executor](layer, lineage)
    after_pending = layer.states[1].copy()

    for source, target in ((1, 10), (1, 1)):
        replay(layer, d, path, source, target)
        assert same(layer.states[target], layer.states[7])
        assert target == 1 or same(layer.states[1], after_pending)
    assert not same(after_pending, start)
    if executor != "torch":
        replay(layer, d, [], 7, 9)
        assert same(layer.states[9], layer.states[7])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_row_that_is_not_finite_does_not_reach_its_siblings(executor):
    lineage, (layer, clean) = ragged_lineage(), (Layer(11, SMALL) for _ in range(2))
    layer.inputs["v"][[2, 7, 9]] = np.nan
    hit = [2, 3, 7, 9]

    got, expected = (RUNS[executor](m, lineage)[0] for m in (layer, clean))

    assert np.isnan(got[hit]).all()
    rest = [i for i in range(11) if i not in hit]
    assert same(got[rest], expected[rest])


@pytest.mark.compiles
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_instruction_sets_give_the_same_states(shape, kind):
    results = []
    for isa in here():
        layer = Layer(11, shape, kind)
        results.append((*run_native(isa, layer, ragged_lineage()), layer.states))

    for other in results[1:]:
        assert all(same(a, b) for a, b in zip(results[0], other, strict=True))


HARD = {
    "one key in every row, without decay, with full writes": (
        DELTA,
        {"k": lambda k: k[:1].repeat(21, 0), "g": np.zeros_like, "beta": np.ones_like},
    ),
    "decays whose sums exceed the range of exponentials": (
        CHANNELS,
        {"g": lambda g: g * np.tile(np.float32([0, 1, 100, 1000]), 5)},
    ),
}
"""The worst conditioned run, and one in which some channels forget at once and others never."""


@pytest.mark.parametrize("what", HARD)
def test_hard_runs_are_those_of_torch_on_a_gpu(what):
    pytest.importorskip("triton", reason="triton is not installed")
    kind, changes = HARD[what]
    one, other = (Layer(21, SMALL, kind) for _ in range(2))
    for layer in (one, other):
        layer.inputs |= {name: np.ascontiguousarray(change(layer.inputs[name])) for name, change in changes.items()}
    lineage = chain(21, runs=((0, 19),))

    results = (*run_gpu(one, lineage), one.states), (*run_torch(other, lineage), other.states)

    for kernel, plain in zip(*results, strict=True):
        assert np.linalg.norm(kernel - plain) <= RATIO * np.linalg.norm(plain)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device: torch sees none")
@pytest.mark.parametrize("name", ["kept", "laid aside", "runs"])
def test_a_repeated_call_gives_the_same_bits(name):
    """A race between threads, or between a state that is written and one that is read, moves bits now and then."""
    lineage, how = CASES[name]
    layers = [Layer(lineage.rows, **{"shape": SMALL, **how}) for _ in range(51)]
    first, *others = ((*run_gpu(layer, lineage), layer.states) for layer in layers)

    for other in others:
        assert all(same(a, b) for a, b in zip(first, other, strict=True))
