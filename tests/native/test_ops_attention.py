"""Attention over a cache: against float64, and equal bits for any chunks of keys and queries.

The options of a test are drawn by its seed: kinds of cache and shapes of heads in turn, so that all of them occur,
and the rest at random. Every draw runs on all instruction sets of this processor, and all give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from attended import HEADS, KINDS, Text, in_bytes, path_to, random_tree
from ops_library import Chain, attend, cuts, here, same
from spec_kernels.ops.attention import attention, causal_mask

pytestmark = pytest.mark.compiles
ERRORS = {"float32": 2e-6, "float16": 2e-3, "q8": 6e-2}
CAPS = [(0.0, None), (0.7, None), (0.0, (-3, 0, 4, 90, 1, -90)), (2.0, (5, -1, 0, 2, -2, 1))]
"""Caps of scores, and sinks: far below the scores, among them, and far above."""

each_kind = pytest.mark.parametrize("kind", KINDS)


def draws(count: int) -> pytest.MarkDecorator:
    """Parametrise a test with seeds."""
    return pytest.mark.parametrize("seed", range(count))


def on_every_isa(compute: Callable[[str], np.ndarray]) -> np.ndarray:
    """The result, whose bits must be the same on all instruction sets of this processor."""
    first, *others = here()
    expected = compute(first)
    for isa in others:
        assert same(expected, compute(isa)), f"{isa} and {first} differ"
    return expected


def byte_formula(text: Text, row: int, seen: Sequence[int], chunk: int = 64) -> np.ndarray:
    """Attention of a q8 cache, written down: queries and keys as bytes in blocks of 32 dimensions, values with one
    scale, the softmax's weights times these scales as bytes in chunks of positions. [H, Dv] in float64."""
    h, kv, _, dv = text.heads
    (q, q_scale), (k, k_scale) = in_bytes(text.q[row], 32), in_bytes(text.k[seen], 32)
    v, v_scale = in_bytes(text.v[seen], 16 * -(-dv // 16))
    k, k_scale, v, v_scale = (m.repeat(h // kv, axis=1) for m in (k, k_scale, v, v_scale))
    scores = np.einsum("hd,thd->ht", q * q_scale, k * k_scale) * text.scale
    weights = np.exp(scores - scores.max(1, keepdims=True))
    shares, out = weights * v_scale[..., 0].T, np.zeros((h, dv))
    for i in range(0, len(seen), chunk):
        scale = shares[:, i : i + chunk].max(1, keepdims=True) / 127
        out += np.einsum("ht,thd->hd", np.round(shares[:, i : i + chunk] / scale), v[i : i + chunk]) * scale
    return out / weights.sum(1, keepdims=True)


@draws(48)
def test_rows_are_the_formula(seed):
    """Of smaller caches up to their rounding; with windows, caps, sinks, and blocks that see all of themselves."""
    draw, kind, heads = np.random.default_rng(seed), KINDS[seed % 3], HEADS[seed % 8]
    rows, start = int(draw.choice([1, 8, 37])), int(draw.choice([0, draw.integers(450)]))
    window, causal = int(draw.choice([0, 0, 1, 7, 16, 17, 40])), bool(draw.random() < 0.8)
    cap, sinks = CAPS[draw.integers(len(CAPS))]
    sinks = None if sinks is None else np.resize(np.array(sinks, np.float32), heads[0])
    text, end = Text(start + rows, heads), start + rows
    seen = [range(max(0, i - window + 1) if window else 0, i + 1 if causal else end) for i in range(start, end)]
    expected = np.stack([text.formula(start + i, positions, cap, sinks) for i, positions in enumerate(seen)])

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(end)),
            text.q[start:],
            Chain(0, rows, start, causal=causal),
            text.scale,
            window,
            cap=cap,
            sinks=sinks,
        )
    )

    assert np.abs(got - expected).max() < ERRORS[kind]


@pytest.mark.parametrize("heads", HEADS)
def test_a_chain_is_the_reference(heads):
    text = Text(45, heads)
    expected = attention(*map(torch.tensor, (text.q[8:], text.k, text.v)), causal_mask(37, 45), text.scale)

    got = on_every_isa(lambda isa: attend(text.cache(isa, rows=range(45)), text.q[8:], Chain(0, 37, 8), text.scale))

    assert np.abs(got - expected.numpy()).max() < 4e-6


@draws(30)
def test_a_q8_cache_is_the_formula_of_bytes(seed):
    """Weights that lie between two integers may round the other way: few, and by one step of their scale."""
    heads = [*HEADS, (2, 1, 6, 18), (3, 1, 322, 510)][seed % 10]
    rows, start = [(1, 0), (3, 62), (8, 150)][seed % 3]
    text = Text(start + rows, heads)
    expected = np.stack([byte_formula(text, start + i, range(start + i + 1)) for i in range(rows)])

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, "q8", range(start + rows)), text.q[start:], Chain(0, rows, start), text.scale
        )
    )

    error = np.abs(got - expected)
    assert np.quantile(error, 0.9) < 2e-6
    assert error.max() < 2e-2


def test_a_float16_cache_of_halves_is_exact():
    text = Text(50)
    text.k, text.v = (m.astype(np.float16).astype(np.float32) for m in (text.k, text.v))

    full, half = (
        on_every_isa(
            lambda isa, kind=kind: attend(text.cache(isa, kind, range(50)), text.q[40:], Chain(0, 10, 40), text.scale)
        )
        for kind in KINDS[:2]
    )

    assert same(full, half)


def test_a_float16_cache_is_the_formula_of_its_own_rounded_numbers():
    text = Text(100, (9, 3, 64, 64))
    whole = Text(100, (9, 3, 64, 64))
    text.k, text.v = (m.astype(np.float16).astype(np.float32) for m in (text.k, text.v))
    expected = np.stack([text.formula(i, range(i + 1)) for i in range(92, 100)])

    got = on_every_isa(
        lambda isa: attend(whole.cache(isa, "float16", range(100)), text.q[92:], Chain(0, 8, 92), text.scale)
    )

    assert np.abs(got - expected).max() < 2e-6


@draws(24)
def test_every_path_of_a_tree_has_the_bits_of_linear_decoding(seed):
    draw, kind = np.random.default_rng(seed), KINDS[seed % 3]
    start, rows = int(draw.choice([draw.integers(40), 130])), int(draw.integers(2, 30))
    window = int(draw.choice([0, 0, 5, 20, 100]))
    text, parents, jobs = Text(start + rows, HEADS[seed % 8], seed), random_tree(rows, draw), list(cuts(rows, draw))
    chain = Chain(0, rows, start, parents)

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(start + rows)), text.q[start:], chain, text.scale, window, jobs=jobs
        )
    )

    for leaf in set(range(rows)) - set(parents):
        path = path_to(parents, leaf)
        whole = [*range(start), *(start + p for p in path)]
        assert same(got[path], text.decode(here()[0], kind, whole, len(path), window))


@draws(24)
def test_a_text_cut_anyhow_has_the_bits_of_one_by_one(seed):
    draw, kind, n = np.random.default_rng(seed), KINDS[seed % 3], 61
    window = int(draw.choice([0, 1, 16, 23]))
    text = Text(n, HEADS[seed % 8], seed)
    pieces = [(first, rows, list(cuts(rows, draw))) for first, rows in cuts(n, draw)]

    def attend_pieces(isa: str) -> np.ndarray:
        cache, out = text.cache(isa, kind), []
        for first, rows, jobs in pieces:
            piece = slice(first, first + rows)
            cache.store(first, text.k[piece], text.v[piece])
            out.append(attend(cache, text.q[piece], Chain(0, rows, first), text.scale, window, jobs=jobs))
        return np.concatenate(out)

    assert same(on_every_isa(attend_pieces), text.decode(here()[0], kind, range(n), n, window))


@draws(24)
def test_rows_that_share_converted_keys_and_values_have_the_bits_of_each_alone(seed):
    """Depths around the chunks in which a cache is converted, more query heads than a block has, one row and many."""
    kind, window, causal = KINDS[seed % 3], 70 * (seed // 12), seed % 5 > 0
    heads = [(9, 3, 64, 64), (40, 1, 32, 32), (2, 1, 512, 512), (14, 2, 20, 36)][seed % 4]
    for start, rows in ((15, 3), (63, 8), (130, 23)):
        text, chain = Text(start + rows, heads), Chain(0, rows, start, causal=causal)
        attend_rows = lambda isa, jobs=None, text=text, chain=chain: attend(
            text.cache(isa, kind, range(len(text.q))), text.q[chain.start :], chain, text.scale, window, jobs=jobs
        )

        together = on_every_isa(attend_rows)

        for i in range(rows):
            assert same(together[i], attend_rows(here()[0], [(i, 1)])[i])


@draws(9)
def test_a_deep_tree_has_the_bits_of_its_paths_as_chains(seed):
    draw, kind, window = np.random.default_rng(seed), KINDS[seed % 3], [0, 9, 150][seed // 3]
    start, rows = 140, 12
    text, parents = Text(start + rows, (9, 3, 64, 64)), random_tree(rows, draw)
    attend_path = lambda isa, seen, chain: attend(
        text.cache(isa, kind, seen), text.q[seen[start:]], chain, text.scale, window
    )

    got = on_every_isa(lambda isa: attend_path(isa, range(start + rows), Chain(0, rows, start, parents)))

    for leaf in set(range(rows)) - set(parents):
        path = path_to(parents, leaf)
        seen = [*range(start), *(start + p for p in path)]
        assert same(got[path], attend_path(here()[0], seen, Chain(0, len(path), start)))


@each_kind
def test_what_a_row_does_not_see_does_not_reach_it(kind):
    """Siblings, later rows, positions past the end and before a sliding window are NaN or infinite."""
    start, parents = 20, [-1, 0, 0, 1, 1, 2, 3]
    text = Text(start + 7)
    rows = [*range(start), *(start + p for p in path_to(parents, 6))]
    for window, hidden in ((0, [start + 2, start + 4, start + 5]), (9, [*range(10), start + 2, start + 4, start + 5])):
        poisoned = Text(start + 7)
        poisoned.k[hidden[::2]], poisoned.v[hidden[::2]] = np.nan, np.inf
        poisoned.k[hidden[1::2]], poisoned.v[hidden[1::2]] = -np.inf, np.nan
        poisoned.q[hidden] = np.nan
        for isa in here():
            cache, tree = poisoned.cache(isa, kind, range(start + 7)), Chain(0, 7, start, parents)
            got = attend(cache, poisoned.q[start:], tree, text.scale, window)
            assert same(got[[6]], text.decode(isa, kind, rows, 1, window))


@each_kind
def test_numbers_that_are_not_finite_make_their_own_row_nan(kind):
    text = Text(3)
    text.v[1, 0, 5] = np.nan
    for isa in here():
        got = attend(text.cache(isa, kind, range(3)), text.q, Chain(0, 3, 0), text.scale)

        assert np.isfinite(got[0]).all()
        assert np.isnan(got[1:, :3, 5]).all()
        assert np.isfinite(got[1:, 3:]).all()


@draws(12)
def test_a_kept_path_moved_together_is_the_linear_cache(seed):
    draw, kind, rows = np.random.default_rng(seed), KINDS[seed % 3], 25
    start = int(draw.integers(0, 20))
    text, parents = Text(start + rows, HEADS[seed % 8]), random_tree(rows, draw)
    path = path_to(parents, rows - 1)

    def attend_compacted(isa: str) -> np.ndarray:
        cache = text.cache(isa, kind, range(start + rows))
        cache.compact(start, [start + p for p in path])
        return attend(cache, text.q[[start + rows - 1]], Chain(0, 1, start + len(path) - 1), text.scale)

    expected = text.decode(here()[0], kind, [*range(start), *(start + p for p in path)], 1)
    assert same(on_every_isa(attend_compacted), expected)


@pytest.mark.parametrize("cap, sinks", CAPS[1:])
@each_kind
def test_capped_scores_and_sinks_of_a_tree_have_the_bits_of_its_paths(kind, cap, sinks):
    sinks, parents = None if sinks is None else np.array(sinks, np.float32), random_tree(14, np.random.default_rng(3))
    text = Text(60)
    attend_rows = lambda isa, seen, chain: attend(
        text.cache(isa, kind, seen), text.q[seen[46:]], chain, text.scale, window=20, cap=cap, sinks=sinks
    )

    tree = on_every_isa(lambda isa: attend_rows(isa, range(60), Chain(0, 14, 46, parents)))

    for row in (5, 13):
        path = [46 + i for i in path_to(parents, row)]
        assert same(tree[row], attend_rows(here()[0], [*range(46), *path], Chain(0, len(path), 46))[-1])


def test_the_output_gate_is_a_sigmoid():
    text = Text(9)
    gate = np.random.default_rng(1).standard_normal((9, 6, 32)).astype(np.float32)
    attend_gated = lambda gate: on_every_isa(
        lambda isa: attend(text.cache(isa, rows=range(9)), text.q, Chain(0, 9, 0), text.scale, gate=gate)
    )

    expected = attend_gated(None) / (1 + np.exp(-gate.astype(np.float64)))

    np.testing.assert_allclose(attend_gated(gate), expected, rtol=1e-6)


def test_sequences_of_a_batch_do_not_know_each_other():
    one, other = Text(31, seed=1), Text(24, seed=2)
    batch = np.concatenate([one.q[26:], other.q[17:]])
    tree = [-1, 5, 6, 6, 8, 9, 9]
    """Of rows 5 to 11 of the batch."""
    attend_rows = lambda q, chain: on_every_isa(
        lambda isa: attend(other.cache(isa, rows=range(24)), q, chain, other.scale)
    )

    alone = attend_rows(other.q[17:], Chain(0, 7, 17, [p - 5 if p > 0 else -1 for p in tree]))

    assert same(attend_rows(batch, Chain(5, 7, 17, tree)), alone)


@each_kind
def test_all_instruction_sets_write_the_same_caches(kind):
    text = Text(40, HEADS[5])
    draw = np.random.default_rng(0)
    text.k *= 10.0 ** draw.integers(-40, 8, text.k.shape)
    text.v *= 10.0 ** draw.integers(-9, 8, (*text.v.shape[:2], 1))
    first, *others = (text.cache(isa, kind, range(40)) for isa in here())

    for other in others:
        assert same(np.asarray(first.keys), np.asarray(other.keys))
        assert same(np.asarray(first.values), np.asarray(other.values))
