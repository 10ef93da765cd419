"""Attention of rows that see the first positions as well as their window, or the window of the first row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attended import HEADS, KINDS, SMALL, Text, path_to, random_tree
from ops_library import Chain, attend, cuts, here, same
from spec_kernels.model.attention import attention
from spec_kernels.model.shapes import HeadShape
from test_ops_attention import ERRORS, draws, on_every_isa
from test_ops_latents import HEADS as LATENT_HEADS
from test_ops_latents import Latents

pytestmark = pytest.mark.compiles

LEADS = (1, 4, 16, 17, 64, 70)
WINDOWS = (1, 5, 16, 40, 100)


def make_text(seed: int, n: int) -> Text:
    return Latents(n, LATENT_HEADS[seed % 6], seed) if seed % 4 == 3 else Text(n, HEADS[seed % 8], seed)


def places_seen(position: int, end: int, window: int, lead: int) -> list[int]:
    return [p for p in range(end) if p > position - window or p < lead]


@draws(48)
def test_rows_are_the_formula(seed):
    """Near the beginning, where the window reaches the first positions, and far from it."""
    draw, kind = np.random.default_rng(seed), KINDS[seed % 3]
    rows, start = int(draw.choice([1, 8, 37])), int(draw.choice([0, draw.integers(150), draw.integers(900)]))
    window, lead, causal = int(draw.choice(WINDOWS)), int(draw.choice(LEADS)), bool(draw.random() < 0.8)
    text, end = make_text(seed, start + rows), start + rows
    cap = float(draw.choice([0, 0, 2]))
    seen = [places_seen(i, i + 1 if causal else end, window, lead) for i in range(start, end)]
    expected = np.stack([text.formula(start + i, places, cap) for i, places in enumerate(seen)])

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(end)),
            text.q[start:],
            Chain(0, rows, start, causal=causal),
            text.scale,
            window,
            cap=cap,
            lead=lead,
        )
    )

    assert np.abs(got - expected).max() < (2e-5 if kind == "float32" else ERRORS[kind])


@draws(24)
def test_every_path_of_a_tree_has_the_bits_of_linear_decoding(seed):
    draw, kind = np.random.default_rng(seed), KINDS[seed % 3]
    start, rows = int(draw.choice([draw.integers(40), 130, 500])), int(draw.integers(2, 30))
    window, lead = int(draw.choice(WINDOWS)), int(draw.choice(LEADS))
    text, parents, jobs = make_text(seed, start + rows), random_tree(rows, draw), list(cuts(rows, draw))
    chain = Chain(0, rows, start, parents)

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(start + rows)),
            text.q[start:],
            chain,
            text.scale,
            window,
            jobs=jobs,
            lead=lead,
        )
    )

    for leaf in set(range(rows)) - set(parents):
        path = path_to(parents, leaf)
        whole = [*range(start), *(start + p for p in path)]
        assert same(got[path], text.decode(here()[0], kind, whole, len(path), window, lead))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [40, 300])
def test_what_lies_before_the_window_does_not_reach_a_row(kind, start):
    """Numbers that are not finite between the first positions and the window."""
    text, poisoned = Text(start + 3), Text(start + 3)
    hidden = range(17, start - 9)
    poisoned.k[hidden], poisoned.v[hidden] = np.nan, np.inf
    rows = range(start + 3)

    for isa in here():
        got, expected = (
            attend(one.cache(isa, kind, rows), text.q[start:], Chain(0, 3, start), text.scale, 9, lead=17)
            for one in (poisoned, text)
        )
        assert same(got, expected)


@draws(12)
def test_the_reference_is_the_native_attention(seed):
    draw = np.random.default_rng(seed)
    start, rows = int(draw.choice([0, 30, 400])), int(draw.choice([1, 5, 40]))
    window, lead = int(draw.choice(WINDOWS)), int(draw.choice(LEADS))
    text, (heads, kv_heads, dim, _) = Text(start + rows, SMALL, seed), SMALL
    shape = HeadShape(heads, kv_heads, dim, dim, text.scale, window, lead=lead)
    keys, values = (torch.from_numpy(m).transpose(0, 1) for m in (text.k, text.v))

    expected = attention(torch.from_numpy(text.q[start:]), keys, values, start, shape).numpy()
    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, "float32", range(start + rows)),
            text.q[start:],
            Chain(0, rows, start),
            text.scale,
            window,
            lead=lead,
        )
    )

    assert np.abs(got - expected).max() < 2e-5


@draws(24)
@pytest.mark.parametrize("causal", [True, False])
def test_anchored_windows_are_those_of_the_first_row(seed, causal):
    draw, kind = np.random.default_rng(seed), KINDS[seed % 3]
    start, rows, window = int(draw.choice([0, 30, 400])), int(draw.choice([1, 8, 40])), int(draw.choice(WINDOWS))
    text, end = Text(start + rows, SMALL, seed), start + rows
    seen = [range(max(0, start - window + 1), i + 1 if causal else end) for i in range(start, end)]
    expected = np.stack([text.formula(start + i, list(places)) for i, places in enumerate(seen)])

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(end)),
            text.q[start:],
            Chain(0, rows, start, causal=causal),
            text.scale,
            window,
            anchored=True,
        )
    )
    heads, kv_heads, dim, _ = SMALL
    shape = HeadShape(heads, kv_heads, dim, dim, text.scale, window)
    keys, values = (torch.from_numpy(m).transpose(0, 1) for m in (text.k, text.v))
    last = None if causal else end - 1
    reference = attention(torch.from_numpy(text.q[start:]), keys, values, start, shape, last, anchor=start).numpy()

    assert np.abs(got - expected).max() < (2e-5 if kind == "float32" else ERRORS[kind])
    assert np.abs(reference - expected).max() < 2e-5
