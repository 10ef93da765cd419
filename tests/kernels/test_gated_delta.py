"""The gated delta rule and the causal convolution against a loop in float64, over chains, trees and ragged batches."""

from __future__ import annotations

import pytest
import torch
from spec_kernels.ops.causal_conv import causal_conv
from spec_kernels.ops.gated_delta import CHUNK, gated_delta, replay_rows
from spec_kernels.ops.lineage import Lineage
from torch.nn import functional as F

HK, HV, DK, DV, N, WIDTH, CHANNELS = 2, 6, 32, 64, 9, 4, 96
KEYS = {"tiled": torch.arange(HV) % HK, "grouped": torch.arange(HV) // (HV // HK)}
DECAYS = ("per-head", "per-channel")


def ragged_lineage() -> Lineage:
    """A chain that keeps its pending rows, a tree whose drafts are all kept, and one row alone."""
    return Lineage(
        parents=[-1, 0, 1, 2, -1, 4, 4, 5, 5, 6, -1],
        source=[0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2],
        keep=[-1, 0, -1, -1, 1, 3, 4, 5, 6, 7, 2],
        begins=[0, 4, 10],
    )


def chain(rows: int, keep: int = 0, chunks: list[tuple[int, int]] | None = None) -> Lineage:
    return Lineage(list(range(-1, rows - 1)), [0] * rows, [-1] * (rows - 1) + [keep], [0], chunks or [])


def inputs(rows: int, decay: str = "per-head", seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = (F.normalize(torch.randn(rows, HK, DK, generator=generator), dim=-1) for _ in range(2))
    shape = (rows, HV) if decay == "per-head" else (rows, HV, DK)
    return {
        "q": q * DK**-0.5,
        "k": k,
        "v": torch.randn(rows, HV, DV, generator=generator),
        "g": -3 * torch.rand(shape, generator=generator),
        "beta": torch.rand(rows, HV, generator=generator),
    }


def stored_states(seed: int = 7) -> torch.Tensor:
    return torch.randn(N, HV, DK, DV, generator=torch.Generator().manual_seed(seed))


def loop(arrays: dict, states: torch.Tensor, lineage: Lineage, key_of: torch.Tensor) -> tuple:
    """The definition, in float64: (o, {row: state after it})."""
    q, k, v, g, beta = (m.double() for m in arrays.values())
    after, out = {}, []
    for r in range(lineage.rows):
        state = after[lineage.parents[r]] if lineage.parents[r] >= 0 else states[lineage.source[r]].double()
        decay = g[r].exp()[..., None]
        state = state * (decay[..., None] if g.dim() == 2 else decay)
        key, query = k[r, key_of], q[r, key_of]
        d = beta[r][:, None] * (v[r] - torch.einsum("hkv,hk->hv", state, key))
        after[r] = state + key[..., None] * d[:, None]
        out.append(torch.einsum("hkv,hk->hv", after[r], query))
    return torch.stack(out), after


@pytest.mark.parametrize("heads", KEYS)
@pytest.mark.parametrize("decay", DECAYS)
def test_every_row_and_every_kept_state_is_that_of_the_loop(decay: str, heads: str) -> None:
    lineage, arrays, states = ragged_lineage(), inputs(11, decay), stored_states()
    expected, after = loop(arrays, states, lineage, KEYS[heads])
    others = [i for i in range(N) if i not in lineage.keep]
    untouched = states[others].clone()
    o, _ = gated_delta(**arrays, states=states, lineage=lineage, key_of=KEYS[heads])
    assert (o - expected).abs().max() < 3e-6
    for row, place in enumerate(lineage.keep):
        if place >= 0:
            assert (states[place] - after[row]).abs().max() < 3e-6
    assert torch.equal(states[others], untouched)


@pytest.mark.parametrize("decay", DECAYS)
def test_a_run_computed_together_is_the_run_computed_row_by_row(decay: str) -> None:
    rows = 3 + 2 * CHUNK + 2
    arrays, states = inputs(rows, decay), stored_states()
    lineage = chain(rows, chunks=[(3, CHUNK), (3 + CHUNK, CHUNK)])
    expected, after = loop(arrays, states, lineage, KEYS["tiled"])
    o, _ = gated_delta(**arrays, states=states, lineage=lineage, key_of=KEYS["tiled"])
    assert (o - expected).abs().max() < 1e-5
    assert (states[0] - after[rows - 1]).abs().max() < 1e-5


def test_a_row_has_the_same_bits_alone_in_a_chain_and_in_a_tree() -> None:
    arrays, key_of = inputs(11), KEYS["tiled"]
    together = stored_states()
    o, _ = gated_delta(**arrays, states=together, lineage=ragged_lineage(), key_of=key_of)
    alone = stored_states()
    for row in (4, 6, 9):  # a path of the tree, one token at a time
        one = {name: m[row : row + 1] for name, m in arrays.items()}
        single, _ = gated_delta(**one, states=alone, lineage=Lineage([-1], [1], [1], [0]), key_of=key_of)
        assert torch.equal(single[0], o[row])
    assert torch.equal(alone[1], together[7])


@pytest.mark.parametrize("decay", DECAYS)
def test_replayed_records_give_the_state_bit_for_bit(decay: str) -> None:
    lineage, arrays, states = ragged_lineage(), inputs(11, decay), stored_states()
    _, d = gated_delta(**arrays, states=states, lineage=lineage, key_of=KEYS["tiled"])
    replay_rows(states, arrays["k"], d, arrays["g"], KEYS["tiled"], path=[6, 9], source=1, target=8)
    assert torch.equal(states[8], states[7])
    replay_rows(states, arrays["k"], d, arrays["g"], KEYS["tiled"], path=[6, 9], source=1, target=1)
    assert torch.equal(states[1], states[7])


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
    lineage, before = ragged_lineage(), windows.clone()
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
