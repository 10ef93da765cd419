"""Attention over latents: against float64, and equal bits for any chunks, trees and divisions of the query heads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest
from attended import KINDS, Text, in_bytes, path_to, random_tree
from ops_library import KV, Attention, Chain, at, attend, cuts, library, memory, same, table
from test_ops_attention import ERRORS, on_every_isa

pytestmark = pytest.mark.compiles
HEADS = [(4, 1, 24, 16), (1, 1, 33, 33), (6, 1, 84, 20), (32, 1, 576, 512), (40, 1, 40, 7), (7, 1, 130, 129)]
"""Query heads, one key head, the width of a key, and its last numbers that are the value."""


def draws(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("seed", range(count))


class Latents(Text):
    """q and k of n tokens; v are the last numbers of k."""

    def __init__(self, n: int, heads: tuple, seed: int = 0) -> None:
        super().__init__(n, heads, seed)
        self.v = self.k[..., heads[2] - heads[3] :]

    def cache(self, isa: str, kind: str = "float32", rows: Sequence[int] = ()) -> KV:
        _, kv, dk, dv = self.heads
        cache = KV(kind, kv, dk, dv, len(self.q) + 19, isa, latent=True)
        if len(rows):
            cache.store(0, self.k[rows], self.v[rows])
        return cache


def byte_formula(text: Latents, row: int, seen: Sequence[int], chunk: int = 64) -> np.ndarray:
    """Attention of a q8 cache, written down: queries as bytes in blocks of 32 dimensions, and keys up to the block in
    which the latent begins; the rest with one scale, which the softmax's weights are multiplied with. [H, Dv]"""
    h, _, dk, dv = text.heads
    begin = (dk - dv) // 32 * 32
    q, q_scale = in_bytes(text.q[row], 32)
    parts = [in_bytes(text.k[seen][..., :begin], 32), in_bytes(text.k[seen][..., begin:], 1024)]
    k, k_scale = (np.concatenate([part[i] for part in parts], -1)[:, 0] for i in (0, 1))
    scores = (q * q_scale) @ (k * k_scale).T * text.scale
    weights = np.exp(scores - scores.max(1, keepdims=True))
    shares, out = weights * k_scale[:, -1], np.zeros((h, dv))
    for i in range(0, len(seen), chunk):
        scale = shares[:, i : i + chunk].max(1, keepdims=True) / 127
        out += np.round(shares[:, i : i + chunk] / scale) @ k[i : i + chunk, dk - dv :] * scale
    return out / weights.sum(1, keepdims=True)


@draws(36)
def test_rows_are_the_formula(seed):
    """With windows, caps and sinks, and blocks that see all of themselves."""
    draw, kind, heads = np.random.default_rng(seed), KINDS[seed % 3], HEADS[seed % 6]
    rows, start = int(draw.choice([1, 8, 37])), int(draw.choice([0, draw.integers(300)]))
    window, causal, cap = int(draw.choice([0, 0, 1, 16, 40])), bool(draw.random() < 0.8), float(draw.choice([0, 0, 2]))
    sinks = draw.standard_normal(heads[0]).astype(np.float32) if draw.random() < 0.3 else None
    text, end = Latents(start + rows, heads), start + rows
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

    assert np.abs(got - expected).max() < (2e-5 if kind == "float32" else ERRORS[kind])


@draws(18)
def test_a_q8_cache_is_the_formula_of_bytes(seed):
    """Weights that lie between two integers may round the other way: few, and by one step of their scale."""
    rows, start = [(1, 0), (3, 62), (8, 150)][seed % 3]
    text = Latents(start + rows, HEADS[seed % 6])
    expected = np.stack([byte_formula(text, start + i, range(start + i + 1)) for i in range(rows)])

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, "q8", range(start + rows)), text.q[start:], Chain(0, rows, start), text.scale
        )
    )

    error = np.abs(got - expected)
    assert np.quantile(error, 0.9) < 2e-6
    assert error.max() < 2e-2


@draws(24)
def test_every_path_of_a_tree_has_the_bits_of_linear_decoding(seed):
    draw, kind = np.random.default_rng(seed), KINDS[seed % 3]
    start, rows = int(draw.choice([draw.integers(40), 130])), int(draw.integers(2, 24))
    window = int(draw.choice([0, 0, 5, 20]))
    text, parents, jobs = Latents(start + rows, HEADS[seed % 6], seed), random_tree(rows, draw), list(cuts(rows, draw))
    chain = Chain(0, rows, start, parents)

    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(start + rows)), text.q[start:], chain, text.scale, window, jobs=jobs
        )
    )

    for leaf in set(range(rows)) - set(parents):
        path = path_to(parents, leaf)
        whole = [*range(start), *(start + p for p in path)]
        assert same(got[path], text.decode("generic", kind, whole, len(path), window))


@draws(12)
def test_a_text_cut_anyhow_has_the_bits_of_one_by_one(seed):
    draw, kind, n = np.random.default_rng(seed), KINDS[seed % 3], 45
    text = Latents(n, HEADS[seed % 6], seed)
    pieces = [(first, rows, list(cuts(rows, draw))) for first, rows in cuts(n, draw)]

    def attend_pieces(isa: str) -> np.ndarray:
        cache, out = text.cache(isa, kind), []
        for first, rows, jobs in pieces:
            piece = slice(first, first + rows)
            cache.store(first, text.k[piece], text.v[piece])
            out.append(attend(cache, text.q[piece], Chain(0, rows, first), text.scale, jobs=jobs))
        return np.concatenate(out)

    assert same(on_every_isa(attend_pieces), text.decode("generic", kind, range(n), n))


@draws(12)
def test_a_kept_path_moved_together_is_the_linear_cache(seed):
    draw, kind, rows = np.random.default_rng(seed), KINDS[seed % 3], 25
    start = int(draw.integers(0, 20))
    text, parents = Latents(start + rows, HEADS[seed % 6]), random_tree(rows, draw)
    path = path_to(parents, rows - 1)

    def attend_compacted(isa: str) -> np.ndarray:
        cache = text.cache(isa, kind, range(start + rows))
        cache.compact(start, [start + p for p in path])
        return attend(cache, text.q[[start + rows - 1]], Chain(0, 1, start + len(path) - 1), text.scale)

    expected = text.decode("generic", kind, [*range(start), *(start + p for p in path)], 1)
    assert same(on_every_isa(attend_compacted), expected)


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_query_heads_in_several_parts_have_the_bits_of_all_together(kind, parts):
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

    whole = on_every_isa(lambda isa: attend(text.cache(isa, kind, range(40)), text.q[37:], Chain(0, 3, 37), text.scale))
    assert same(on_every_isa(attend_parts), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_row_does_not_see_does_not_reach_it(kind):
    """Siblings, later rows and positions past the end are NaN or infinite."""
    start, parents = 20, [-1, 0, 0, 1, 1, 2, 3]
    hidden = [start + 2, start + 4, start + 5]
    text, poisoned = Latents(start + 7, HEADS[2]), Latents(start + 7, HEADS[2])
    poisoned.k[hidden[::2]], poisoned.k[hidden[1::2]], poisoned.q[hidden] = np.nan, -np.inf, np.nan
    rows = [*range(start), *(start + p for p in path_to(parents, 6))]

    got = on_every_isa(
        lambda isa: attend(
            poisoned.cache(isa, kind, range(start + 7)), poisoned.q[start:], Chain(0, 7, start, parents), text.scale
        )[[6]]
    )

    assert same(got, text.decode("generic", kind, rows, 1))
