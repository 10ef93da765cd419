"""The sparse index: pools against float64, attention to them, and equal bits for any chunks, trees and caches."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest
from attended import KINDS, Latents, on_every_isa, path_to, random_tree
from ops_library import KV, Chain, Index, at, attend, cuts, here, library, memory, same, table

pytestmark = pytest.mark.compiles
SHAPES = [(1, 8, 1, 2), (3, 12, 4, 3), (2, 20, 3, 1), (4, 128, 16, 2), (2, 40, 17, 1), (5, 33, 8, 4)]
"""Heads, their width, positions of a pool, pools of a row."""


def draws(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("seed", range(count))


class Indexed:
    """Index rows of n tokens."""

    def __init__(self, n: int, shape: tuple[int, int, int, int], seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.shape = heads, dim, pool, _ = shape
        sizes = (n, 1, 2 * dim), (n, heads, dim), (n, heads), (pool, dim)
        self.rows, self.q, self.weights, self.base = (draw.standard_normal(s).astype(np.float32) for s in sizes)

    def cache(self, isa: str, kind: str, order: Sequence[int]) -> KV:
        dim = self.shape[1]
        cache = KV(kind, 1, 2 * dim, dim, len(self.rows) + 19, isa, latent=True)
        cache.store(0, self.rows[order], self.rows[order])
        return cache

    def formula(self, row: int, path: Sequence[int]) -> list[int]:
        """Pools of a row whose path has these tokens, in float64."""
        _, dim, pool, used = self.shape
        whole = self.rows[path[: len(path) // pool * pool], 0].astype(np.float64).reshape(-1, pool, 2 * dim)
        shares = np.exp(whole[..., dim:] + self.base)
        keys = (shares / shares.sum(1, keepdims=True) * whole[..., :dim]).sum(1)
        scores = self.weights[row] @ np.maximum(self.q[row].astype(np.float64) @ keys.T, 0)
        best = sorted(np.argsort(-scores, kind="stable")[:used].tolist())
        return best + [-1] * (used - len(best))


def choose(kv: KV, text: Indexed, batch: slice, sequence: Chain, jobs: Sequence[tuple[int, int]] = ()) -> np.ndarray:
    """float32 [R, used]: the pools of the rows ``batch`` of a text."""
    heads, dim, pool, used = text.shape
    q, weights = (np.ascontiguousarray(m[batch]) for m in (text.q, text.weights))
    out = np.full((len(q), used), np.nan, np.float32)
    a = Index(heads, dim, pool, used, at(q), heads * dim, at(weights), heads, at(text.base), at(out), used)
    s, end = sequence.c(), sequence.start + sequence.rows
    scratch = memory(library().spec_index_scratch(end, sequence.rows, pool, dim))
    for row, count in jobs or [(0, sequence.rows)]:
        scratch[:] = 0xFF
        table(kv.isa).choose_pools(ctypes.byref(a), ctypes.byref(kv.c), ctypes.byref(s), row, count, at(scratch))
    return out


@draws(18)
def test_pools_of_rows_are_the_best_by_the_formula(seed):
    draw = np.random.default_rng(seed)
    rows, start = int(draw.choice([1, 8, 37])), int(draw.choice([0, draw.integers(200)]))
    text, end = Indexed(start + rows, SHAPES[seed % 6], seed), start + rows
    jobs = list(cuts(rows, draw))
    got = on_every_isa(
        lambda isa: choose(text.cache(isa, "float32", range(end)), text, slice(start, end), Chain(0, rows, start), jobs)
    )

    assert got.tolist() == [text.formula(i, range(i + 1)) for i in range(start, end)]


@draws(36)
def test_rows_of_a_tree_choose_what_their_path_chooses_alone(seed):
    draw, kind = np.random.default_rng(seed), KINDS[seed % 3]
    start, rows = int(draw.choice([draw.integers(40), 130])), int(draw.integers(2, 24))
    text, parents = Indexed(start + rows, SHAPES[seed % 6], seed), random_tree(rows, draw)
    got = on_every_isa(
        lambda isa: choose(
            text.cache(isa, kind, range(start + rows)), text, slice(start, None), Chain(0, rows, start, parents)
        )
    )

    for row in range(rows):
        path = [*range(start), *(start + node for node in path_to(parents, row))]
        own = slice(start + row, start + row + 1)
        alone = choose(text.cache("generic", kind, path), text, own, Chain(0, 1, len(path) - 1))
        assert same(got[row : row + 1], alone)


def test_among_equal_scores_the_first_pools_are_chosen():
    text = Indexed(40, (2, 12, 4, 3), 0)
    text.weights[:] = 0
    got = choose(text.cache("generic", "float32", range(40)), text, slice(39, 40), Chain(0, 1, 39))

    assert got.tolist() == [[0, 1, 2]]


def test_larger_scores_come_before_equal_ones_of_earlier_pools():
    """Scores of 0 in all pools but the last: two of them are chosen, the first ones."""
    text = Indexed(40, (2, 12, 4, 3), 0)
    text.rows[:], text.weights[:] = 0, 1
    text.rows[36:, 0, :12] = text.q[39, 0]
    for isa in here():
        got = choose(text.cache(isa, "float32", range(40)), text, slice(39, 40), Chain(0, 1, 39))

        assert got.tolist() == [[0, 1, 9]]


@draws(18)
def test_attention_to_pools_is_attention_to_their_positions(seed):
    """And has the bits of decoding one row alone, in a tree too."""
    draw, kind = np.random.default_rng(seed), KINDS[seed % 2]
    start, rows, pool = int(draw.integers(40, 150)), int(draw.integers(2, 24)), int(draw.choice([1, 4, 16, 17]))
    text, parents = Latents(start + rows, [(4, 1, 24, 16), (6, 1, 84, 20)][seed % 2], seed), random_tree(rows, draw)
    paths = [[*range(start), *(start + node for node in path_to(parents, row))] for row in range(rows)]
    pools = np.full((rows, 3), -1, np.float32)
    for row, path in enumerate(paths):
        whole = draw.permutation(len(path) // pool)[: int(draw.integers(1, 4))]
        pools[row, : len(whole)] = np.sort(whole)
    got = on_every_isa(
        lambda isa: attend(
            text.cache(isa, kind, range(start + rows)),
            text.q[start:],
            Chain(0, rows, start, parents),
            text.scale,
            pools=pools,
            pool=pool,
        )
    )

    for row, path in enumerate(paths):
        tail = len(path) // pool * pool
        seen = [path[p] for p in range(len(path)) if p >= tail or p // pool in pools[row]]
        np.testing.assert_allclose(got[row], text.formula(start + row, seen), atol=2e-5 if kind == "float32" else 2e-3)
        own = np.ascontiguousarray(pools[row : row + 1])
        chain, cache = Chain(0, 1, len(path) - 1), text.cache("generic", kind, path)
        alone = attend(cache, text.q[path[-1] :][:1], chain, text.scale, pools=own, pool=pool)
        assert same(got[row : row + 1], alone)
