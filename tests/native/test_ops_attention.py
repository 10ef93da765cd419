"""Attention over a cache: against float64 on every executor, and equal bits for any chunks of keys and queries.

The options of a test are drawn by its form and seed, see ``attended``. Every draw runs on all instruction sets of this
processor, and all give the same bits.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from attended import (
    CAPS,
    HEADS,
    KINDS,
    LATENT_HEADS,
    LATENTS,
    PLAIN,
    Case,
    Latents,
    Text,
    draw_case,
    draw_text,
    draw_tree,
    on_every_isa,
    path_to,
    random_tree,
)
from ops_library import Attention, Chain, at, attend, cuts, here, library, memory, same, table

pytestmark = pytest.mark.compiles
ERRORS = {"float32": 2e-6, "float16": 2e-3, "q8": 6e-2}

each_kind = pytest.mark.parametrize("kind", KINDS)


def draws(**counts: int) -> pytest.MarkDecorator:
    """Parametrise a test with forms, and seeds of each."""
    return pytest.mark.parametrize("form, seed", [(form, seed) for form, n in counts.items() for seed in range(n)])


@draws(plain=48, latents=36, leads=48, anchored=48)
def test_rows_are_the_formula(form, seed):
    """Of smaller caches up to their rounding; with windows, caps, sinks, and blocks that see all of themselves."""
    case = draw_case(form, seed)
    expected = case.formula()

    got = on_every_isa(case.native)

    exact = ERRORS["float32"] if form == PLAIN else 2e-5
    assert np.abs(got - expected).max() < (exact if case.kind == "float32" else ERRORS[case.kind])
    if seed % 4 == 0:
        assert np.abs(case.torch() - expected).max() < 2e-5


@draws(plain=30, latents=18)
def test_a_q8_cache_is_the_formula_of_bytes(form, seed):
    """Weights that lie between two integers may round the other way: few, and by one step of their scale."""
    heads = [*HEADS, (2, 1, 6, 18), (3, 1, 322, 510)][seed % 10] if form == PLAIN else LATENT_HEADS[seed % 6]
    rows, start = [(1, 0), (3, 62), (8, 150)][seed % 3]
    text = (Text if form == PLAIN else Latents)(start + rows, heads)
    expected = np.stack([text.byte_formula(start + i, range(start + i + 1)) for i in range(rows)])

    error = np.abs(on_every_isa(Case(text, "q8", start).native) - expected)

    assert np.quantile(error, 0.9) < 2e-6
    assert error.max() < 2e-2


def test_a_float16_cache_of_halves_is_exact():
    text = Text(50)
    text.k, text.v = (m.astype(np.float16).astype(np.float32) for m in (text.k, text.v))

    full, half = (on_every_isa(Case(text, kind, 40).native) for kind in KINDS[:2])

    assert same(full, half)


def test_a_float16_cache_is_the_formula_of_its_own_rounded_numbers():
    text, whole = Text(100, (9, 3, 64, 64)), Text(100, (9, 3, 64, 64))
    text.k, text.v = (m.astype(np.float16).astype(np.float32) for m in (text.k, text.v))

    got = on_every_isa(Case(whole, "float16", 92).native)

    assert np.abs(got - Case(text, "float32", 92).formula()).max() < 2e-6


@draws(plain=24, latents=24, leads=24)
def test_every_path_of_a_tree_has_the_bits_of_linear_decoding(form, seed):
    case = draw_tree(form, seed)
    jobs = list(cuts(case.rows, np.random.default_rng(seed)))

    got = on_every_isa(lambda isa: case.native(isa, jobs))

    for leaf in set(range(case.rows)) - set(case.parents):
        path = path_to(case.parents, leaf)
        whole = [*range(case.start), *(case.start + p for p in path)]
        decoded = case.text.decode(here()[0], case.kind, whole, len(path), case.window, case.lead)
        assert same(got[path], decoded)


@draws(plain=24, latents=12)
def test_a_text_cut_anyhow_has_the_bits_of_one_by_one(form, seed):
    draw, kind, n = np.random.default_rng(seed), KINDS[seed % 3], 61 if form == PLAIN else 45
    window, text = int(draw.choice([0, 1, 16, 23])), draw_text(form, seed, n)
    pieces = [(first, rows, list(cuts(rows, draw))) for first, rows in cuts(n, draw)]

    def attend_pieces(isa: str) -> np.ndarray:
        cache, out = text.cache(isa, kind), []
        for first, rows, jobs in pieces:
            piece = slice(first, first + rows)
            cache.store(first, text.k[piece], text.v[piece])
            out.append(attend(cache, text.q[piece], Chain(0, rows, first), text.scale, window, jobs=jobs))
        return np.concatenate(out)

    assert same(on_every_isa(attend_pieces), text.decode(here()[0], kind, range(n), n, window))


@draws(plain=12, latents=12)
def test_a_kept_path_moved_together_is_the_linear_cache(form, seed):
    draw, kind, rows = np.random.default_rng(seed), KINDS[seed % 3], 25
    start = int(draw.integers(0, 20))
    text, parents = draw_text(form, seed, start + rows), random_tree(rows, draw)
    path = path_to(parents, rows - 1)

    def attend_compacted(isa: str) -> np.ndarray:
        cache = text.cache(isa, kind, range(start + rows))
        cache.compact(start, [start + p for p in path])
        return attend(cache, text.q[[start + rows - 1]], Chain(0, 1, start + len(path) - 1), text.scale)

    expected = text.decode(here()[0], kind, [*range(start), *(start + p for p in path)], 1)
    assert same(on_every_isa(attend_compacted), expected)


TREE = [-1, 0, 0, 1, 1, 2, 3]
SIBLINGS = [2, 4, 5]
"""Nodes that are not on the path to the last."""
UNSEEN: dict[str, tuple[int, int, int, list[int]]] = {
    "siblings": (20, 0, 0, []),
    "positions before a window": (20, 9, 0, [*range(10)]),
    "positions between a lead and a window": (40, 9, 17, [*range(17, 34)]),
    "many positions between a lead and a window": (300, 9, 17, [*range(17, 294)]),
}
"""Rows before a tree, a window, a lead, and positions that the last node of the tree does not see; nor its siblings."""


@each_kind
@pytest.mark.parametrize("form", [PLAIN, LATENTS])
@pytest.mark.parametrize("what", UNSEEN)
def test_what_a_row_does_not_see_does_not_reach_it(what, form, kind):
    """Siblings, later rows, positions past the end and before a sliding window are NaN or infinite."""
    start, window, lead, before = UNSEEN[what]
    hidden = [*before, *(start + node for node in SIBLINGS)]
    make = lambda: Text(start + 7) if form == PLAIN else Latents(start + 7, LATENT_HEADS[2])
    text, poisoned = make(), make()
    poisoned.k[hidden[::2]], poisoned.k[hidden[1::2]] = np.nan, -np.inf
    poisoned.v[hidden[::2]], poisoned.v[hidden[1::2]] = np.inf, np.nan
    poisoned.q[hidden] = np.nan
    case = Case(poisoned, kind, start, TREE, window, lead)

    got = on_every_isa(lambda isa: case.native(isa)[[6]])

    path = [*range(start), *(start + p for p in path_to(TREE, 6))]
    assert same(got, text.decode(here()[0], kind, path, 1, window, lead))


@pytest.mark.parametrize("parts", [2, 4, 8])
@each_kind
def test_query_heads_of_latents_in_several_parts_have_the_bits_of_all_together(kind, parts):
    """As threads divide them: every part is a kv head of its own that reads the same keys."""
    text = Latents(40, (8, 1, 84, 20))

    def attend_parts(isa: str) -> np.ndarray:
        cache, out = text.cache(isa, kind, range(40)), np.full((3, 8, 20), np.nan, np.float32)
        cache.c.kv_heads, cache.c.key_head_bytes = parts, 0
        q, chain = np.ascontiguousarray(text.q[37:]), Chain(0, 3, 37).c()
        a = Attention(8, 0, 0, text.scale, at(q), 8 * 84, at(out), 8 * 20, None, 0, 0.0, None)
        scratch = memory(library().spec_attention_scratch(40))
        for part in range(parts):
            table(isa).attend(*map(ctypes.byref, (a, cache.c, chain)), part, 0, 3, at(scratch))
        return out

    assert same(on_every_isa(attend_parts), on_every_isa(Case(text, kind, 37).native))


@pytest.mark.parametrize("seed", range(24))
def test_rows_that_share_converted_keys_and_values_have_the_bits_of_each_alone(seed):
    """Depths around the chunks in which a cache is converted, more query heads than a block has, one row and many."""
    kind, window, causal = KINDS[seed % 3], 70 * (seed // 12), seed % 5 > 0
    heads = [(9, 3, 64, 64), (40, 1, 32, 32), (2, 1, 512, 512), (14, 2, 20, 36)][seed % 4]
    for start, rows in ((15, 3), (63, 8), (130, 23)):
        case = Case(Text(start + rows, heads), kind, start, window=window, causal=causal)

        together = on_every_isa(case.native)

        for i in range(rows):
            assert same(together[i], case.native(here()[0], [(i, 1)])[i])


@each_kind
def test_numbers_that_are_not_finite_make_their_own_row_nan(kind):
    text = Text(3)
    text.v[1, 0, 5] = np.nan
    for isa in here():
        got = Case(text, kind, 0).native(isa)

        assert np.isfinite(got[0]).all()
        assert np.isnan(got[1:, :3, 5]).all()
        assert np.isfinite(got[1:, 3:]).all()


@pytest.mark.parametrize("cap, sinks", CAPS[1:])
@each_kind
def test_capped_scores_and_sinks_of_a_tree_have_the_bits_of_its_paths(kind, cap, sinks):
    sinks, parents = None if sinks is None else np.array(sinks, np.float32), random_tree(14, np.random.default_rng(3))
    text, how = Text(60), {"window": 20, "cap": cap, "sinks": sinks}

    tree = on_every_isa(Case(text, kind, 46, parents, **how).native)

    for row in (5, 13):
        seen = [*range(46), *(46 + i for i in path_to(parents, row))]
        cache, chain = text.cache(here()[0], kind, seen), Chain(0, len(seen) - 46, 46)
        assert same(tree[row], attend(cache, text.q[seen[46:]], chain, text.scale, **how)[-1])


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
