"""Attention over a cache: against float64, and equal bits for any chunks of keys and queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from attended import HEADS, KINDS, Text, path_to, random_tree
from ops_library import Chain, attend, cuts, each_isa, each_with_vnni, here, same
from spec_kernels.ops.attention import attention, causal_mask

pytestmark = pytest.mark.compiles


def in_bytes(m: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """m: float32 [..., D] -> integers, and the float16 scale of every number's block; both float64 [..., D]"""
    blocks = np.pad(m, [(0, 0)] * (m.ndim - 1) + [(0, -m.shape[-1] % block)]).reshape(*m.shape[:-1], -1, block)
    scale = (np.abs(blocks).max(-1, keepdims=True) / np.float32(127)).astype(np.float16).astype(np.float32)
    integers = np.clip(np.round(blocks * (1 / scale)), -127, 127)
    return tuple(
        x.reshape(*m.shape[:-1], -1)[..., : m.shape[-1]].astype(np.float64)
        for x in (integers, np.broadcast_to(scale, blocks.shape))
    )


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


@each_isa
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("rows, start", [(1, 0), (1, 447), (8, 40), (37, 0)])
def test_a_chain_is_the_formula(isa, heads, rows, start):
    text = Text(start + rows, heads)
    cache = text.cache(isa, rows=range(start + rows))
    expected = np.stack([text.formula(start + i, range(start + i + 1)) for i in range(rows)])

    got = attend(cache, text.q[start:], Chain(0, rows, start), text.scale)

    assert np.abs(got - expected).max() < 2e-6
    mask = causal_mask(rows, start + rows)
    reference = attention(*map(torch.tensor, (text.q[start:], text.k, text.v)), mask, text.scale)
    assert np.abs(got - reference.numpy()).max() < 4e-6


@each_isa
@pytest.mark.parametrize("kind, error", [("float16", 2e-3), ("q8", 6e-2)])
@pytest.mark.parametrize("heads", HEADS)
def test_smaller_caches_are_the_formula_up_to_their_rounding(isa, kind, error, heads):
    text = Text(70, heads)
    cache = text.cache(isa, kind, range(70))
    expected = np.stack([text.formula(i, range(i + 1)) for i in range(60, 70)])

    got = attend(cache, text.q[60:], Chain(0, 10, 60), text.scale)

    assert np.abs(got - expected).max() < error


@each_isa
def test_a_float16_cache_of_halves_is_exact(isa):
    text = Text(50)
    text.k, text.v = (m.astype(np.float16).astype(np.float32) for m in (text.k, text.v))

    full, half = (
        attend(text.cache(isa, kind, range(50)), text.q[40:], Chain(0, 10, 40), text.scale) for kind in KINDS[:2]
    )

    assert same(full, half)


@each_with_vnni
@pytest.mark.parametrize("heads", [*HEADS, (2, 1, 6, 18)])
@pytest.mark.parametrize("rows, start", [(1, 0), (3, 62), (8, 150)])
def test_a_q8_cache_is_the_formula_of_bytes(isa, heads, rows, start):
    """Weights that lie between two integers may round the other way: few, and by one step of their scale."""
    text = Text(start + rows, heads)
    cache = text.cache(isa, "q8", range(start + rows))
    expected = np.stack([byte_formula(text, start + i, range(start + i + 1)) for i in range(rows)])

    error = np.abs(attend(cache, text.q[start:], Chain(0, rows, start), text.scale) - expected)

    assert np.quantile(error, 0.9) < 2e-6
    assert error.max() < 2e-2


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_every_path_of_a_tree_has_the_bits_of_linear_decoding(isa, kind, seed):
    draw = np.random.default_rng(seed)
    start, rows, window = int(draw.integers(0, 40)), int(draw.integers(2, 30)), int(draw.choice([0, 0, 5, 20]))
    heads = HEADS[seed]
    text, parents = Text(start + rows, heads, seed), random_tree(rows, draw)
    cache = text.cache(isa, kind, range(start + rows))

    got = attend(cache, text.q[start:], Chain(0, rows, start, parents), text.scale, window, jobs=list(cuts(rows, draw)))

    leaves = set(range(rows)) - set(parents)
    for leaf in leaves:
        path = path_to(parents, leaf)
        expected = text.decode(isa, kind, [*range(start), *(start + p for p in path)], len(path), window)
        assert same(got[path], expected)


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [0, 1, 16, 23])
@pytest.mark.parametrize("seed", range(3))
def test_a_text_cut_anyhow_has_the_bits_of_one_by_one(isa, kind, window, seed):
    draw, n = np.random.default_rng(seed), 61
    text = Text(n, HEADS[seed], seed)
    cache, out = text.cache(isa, kind), []
    for first, rows in cuts(n, draw):
        cache.store(first, text.k[first : first + rows], text.v[first : first + rows])
        out.append(
            attend(
                cache,
                text.q[first : first + rows],
                Chain(0, rows, first),
                text.scale,
                window,
                jobs=list(cuts(rows, draw)),
            )
        )

    assert same(np.concatenate(out), text.decode(isa, kind, range(n), n, window))


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [0, 70])
@pytest.mark.parametrize("heads", [(9, 3, 64, 64), (40, 1, 32, 32), (2, 1, 256, 256), (14, 2, 20, 36)])
def test_rows_that_share_converted_keys_and_values_have_the_bits_of_each_alone(isa, kind, window, heads):
    """Depths around the chunks in which a cache is converted, more query heads than a block has, one row and many."""
    for start, rows in ((15, 3), (63, 8), (130, 23)):
        text = Text(start + rows, heads)
        cache = text.cache(isa, kind, range(start + rows))
        chain = Chain(0, rows, start)
        alone = attend(cache, text.q[start:], chain, text.scale, window, jobs=[(i, 1) for i in range(rows)])

        assert same(attend(cache, text.q[start:], chain, text.scale, window), alone)


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [0, 9, 150])
def test_a_deep_tree_has_the_bits_of_its_paths_as_chains(isa, kind, window):
    draw, start, rows = np.random.default_rng(5), 140, 12
    text, parents = Text(start + rows, (9, 3, 64, 64)), random_tree(rows, draw)
    cache = text.cache(isa, kind, range(start + rows))

    got = attend(cache, text.q[start:], Chain(0, rows, start, parents), text.scale, window)

    for leaf in set(range(rows)) - set(parents):
        path = path_to(parents, leaf)
        seen = [*range(start), *(start + p for p in path)]
        chain = attend(
            text.cache(isa, kind, seen),
            text.q[[start + p for p in path]],
            Chain(0, len(path), start),
            text.scale,
            window,
        )
        assert same(got[path], chain)


@each_isa
def test_a_float16_cache_is_the_formula_of_its_own_rounded_numbers(isa):
    text = Text(100, (9, 3, 64, 64))
    cache = text.cache(isa, "float16", range(100))
    text.k, text.v = (m.astype(np.float16).astype(np.float32) for m in (text.k, text.v))
    expected = np.stack([text.formula(i, range(i + 1)) for i in range(92, 100)])

    got = attend(cache, text.q[92:], Chain(0, 8, 92), text.scale)

    assert np.abs(got - expected).max() < 2e-6


@each_isa
@pytest.mark.parametrize("window", [1, 7, 16, 17, 40])
def test_a_window_hides_what_is_before_it(isa, window):
    text = Text(50)
    cache = text.cache(isa, rows=range(50))
    expected = np.stack([text.formula(i, range(max(0, i - window + 1), i + 1)) for i in range(30, 50)])

    got = attend(cache, text.q[30:], Chain(0, 20, 30), text.scale, window)

    assert np.abs(got - expected).max() < 2e-6


@each_isa
@pytest.mark.parametrize("window", [0, 9])
def test_a_block_that_is_not_causal_sees_all_of_itself(isa, window):
    text, start, rows = Text(45), 30, 15
    cache = text.cache(isa, rows=range(45))
    low = [max(0, i - window + 1) if window else 0 for i in range(start, 45)]
    expected = np.stack([text.formula(start + i, range(low[i], 45)) for i in range(rows)])

    got = attend(cache, text.q[start:], Chain(0, rows, start, causal=False), text.scale, window)

    assert np.abs(got - expected).max() < 2e-6
    alone = [
        attend(cache, text.q[start:], Chain(0, rows, start, causal=False), text.scale, window, jobs=[(i, 1)])[i]
        for i in range(rows)
    ]
    assert same(got, np.stack(alone))


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_row_does_not_see_does_not_reach_it(isa, kind):
    """Siblings, later rows, positions past the end and before a sliding window are NaN or infinite."""
    start, parents = 20, [-1, 0, 0, 1, 1, 2, 3]
    text = Text(start + 7)
    rows = [*range(start), *(start + p for p in path_to(parents, 6))]
    for window, hidden in ((0, [start + 2, start + 4, start + 5]), (9, [*range(10), start + 2, start + 4, start + 5])):
        expected = text.decode(isa, kind, rows, 1, window)
        poisoned = Text(start + 7)
        poisoned.k[hidden[::2]], poisoned.v[hidden[::2]] = np.nan, np.inf
        poisoned.k[hidden[1::2]], poisoned.v[hidden[1::2]] = -np.inf, np.nan
        poisoned.q[hidden] = np.nan
        cache = poisoned.cache(isa, kind, range(start + 7))
        got = attend(cache, poisoned.q[start:], Chain(0, 7, start, parents), text.scale, window)
        assert same(got[[6]], expected)


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_not_finite_make_their_own_row_nan(isa, kind):
    text = Text(3)
    text.v[1, 0, 5] = np.nan
    got = attend(text.cache(isa, kind, range(3)), text.q, Chain(0, 3, 0), text.scale)

    assert np.isfinite(got[0]).all()
    assert np.isnan(got[1:, :3, 5]).all()
    assert np.isfinite(got[1:, 3:]).all()


@each_with_vnni
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_kept_path_moved_together_is_the_linear_cache(isa, kind, seed):
    draw = np.random.default_rng(seed)
    start, rows = int(draw.integers(0, 20)), 25
    text, parents = Text(start + rows, HEADS[seed]), random_tree(rows, draw)
    path = path_to(parents, rows - 1)
    cache = text.cache(isa, kind, range(start + rows))
    cache.compact(start, [start + p for p in path])

    got = attend(cache, text.q[[start + rows - 1]], Chain(0, 1, start + len(path) - 1), text.scale)

    assert same(got, text.decode(isa, kind, [*range(start), *(start + p for p in path)], 1))


CAPS = [(0.7, None), (0.0, (-3, 0, 4, 90, 1, -90)), (2.0, (5, -1, 0, 2, -2, 1))]
"""Caps of scores, and sinks: far below the scores, among them, and far above."""


def as_sinks(given: tuple[int, ...] | None) -> np.ndarray | None:
    return None if given is None else np.array(given, np.float32)


@each_isa
@pytest.mark.parametrize("cap, sinks", CAPS)
@pytest.mark.parametrize("window", [0, 9])
def test_capped_scores_and_sinks_are_the_formula(isa, cap, sinks, window):
    text, sinks = Text(50), as_sinks(sinks)
    cache = text.cache(isa, rows=range(50))
    low = [max(0, i - window + 1) if window else 0 for i in range(50)]
    expected = np.stack([text.formula(i, range(low[i], i + 1), cap, sinks) for i in range(50)])

    got = attend(cache, text.q, Chain(0, 50, 0), text.scale, window, cap=cap, sinks=sinks)

    assert np.abs(got - expected).max() < 2e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cap, sinks", CAPS)
def test_capped_scores_and_sinks_of_a_tree_have_the_bits_of_its_paths_everywhere(kind, cap, sinks):
    sinks, parents = as_sinks(sinks), random_tree(14, np.random.default_rng(3))
    text, results = Text(60), []
    more = {"window": 20, "cap": cap, "sinks": sinks}
    for isa in here():
        cache = text.cache(isa, kind, range(60))
        tree = attend(cache, text.q[46:], Chain(0, 14, 46, parents), text.scale, **more)
        for row in (5, 13):
            path = [46 + i for i in path_to(parents, row)]
            alone = text.cache(isa, kind, [*range(46), *path])
            n = len(path)
            line = attend(alone, text.q[path], Chain(0, n, 46), text.scale, **more)
            assert same(tree[row], line[-1])
        results.append(tree)

    assert all(same(results[0], r) for r in results[1:])


@each_isa
def test_the_output_gate_is_a_sigmoid(isa):
    text = Text(9)
    cache = text.cache(isa, rows=range(9))
    gate = np.random.default_rng(1).standard_normal((9, 6, 32)).astype(np.float32)

    plain = attend(cache, text.q, Chain(0, 9, 0), text.scale)
    gated = attend(cache, text.q, Chain(0, 9, 0), text.scale, gate=gate)

    np.testing.assert_allclose(gated, plain / (1 + np.exp(-gate.astype(np.float64))), rtol=1e-6)


@each_isa
def test_sequences_of_a_batch_do_not_know_each_other(isa):
    one, other = Text(31, seed=1), Text(24, seed=2)
    batch = np.concatenate([one.q[26:], other.q[17:]])
    tree = [5, 5, 6, 6, 8, 9, 9]  # rows 5 to 11 of the batch; the first is the root
    tree[0] = -1

    got = attend(other.cache(isa, rows=range(24)), batch, Chain(5, 7, 17, tree), other.scale)
    alone = attend(
        other.cache(isa, rows=range(24)),
        other.q[17:],
        Chain(0, 7, 17, [p - 5 if p > 0 else -1 for p in tree]),
        other.scale,
    )

    assert same(got, alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", HEADS)
def test_all_instruction_sets_have_the_same_bits(kind, heads):
    draw = np.random.default_rng(heads[0])
    text, parents = Text(150, heads), random_tree(20, draw)
    results = []
    for isa in here():
        cache = text.cache(isa, kind, range(150))
        results.append(attend(cache, text.q[130:], Chain(0, 20, 130, parents), text.scale, window=100))

    assert all(same(results[0], r) for r in results[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_all_instruction_sets_write_the_same_caches(kind):
    text = Text(40, HEADS[5])
    draw = np.random.default_rng(0)
    text.k *= 10.0 ** draw.integers(-40, 8, text.k.shape)
    text.v *= 10.0 ** draw.integers(-9, 8, (*text.v.shape[:2], 1))
    first, *others = (text.cache(isa, kind, range(40)) for isa in here())

    for other in others:
        assert same(np.asarray(first.keys), np.asarray(other.keys))
        assert same(np.asarray(first.values), np.asarray(other.values))
