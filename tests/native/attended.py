"""Random texts of attention: queries, keys and values, their caches, and the formula in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ops_library import KV, Chain, attend

HEADS = [
    (3, 1, 64, 64),
    (4, 2, 32, 48),
    (9, 3, 64, 64),
    (8, 1, 128, 128),
    (5, 5, 16, 32),
    (14, 2, 20, 36),
    (2, 1, 256, 256),
    (2, 1, 512, 512),
]
"""Query heads, kv heads, key dimensions, value dimensions."""
KINDS = ("float32", "float16", "q8")
SMALL = (6, 2, 32, 32)


class Text:
    """q, k and v of n tokens, by the same seed the same."""

    def __init__(self, n: int, heads: tuple = SMALL, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.heads = heads
        h, kv, dk, dv = heads
        self.q, self.k, self.v = (
            draw.standard_normal((n, count, dim)).astype(np.float32) for count, dim in ((h, dk), (kv, dk), (kv, dv))
        )
        self.scale = dk**-0.5

    def cache(self, isa: str, kind: str = "float32", rows: Sequence[int] = ()) -> KV:
        """A cache whose first places hold these tokens."""
        _, kv, dk, dv = self.heads
        cache = KV(kind, kv, dk, dv, len(self.q) + 19, isa)
        if len(rows):
            cache.store(0, self.k[rows], self.v[rows])
        return cache

    def decode(self, isa: str, kind: str, path: Sequence[int], last: int, window: int = 0, lead: int = 0) -> np.ndarray:
        """The last rows of a path, one forward for each: the reference for all other forms."""
        cache, out = self.cache(isa, kind), []
        for i, row in enumerate(path):
            cache.store(i, self.k[[row]], self.v[[row]])
            if i >= len(path) - last:
                out.append(attend(cache, self.q[[row]], Chain(0, 1, i), self.scale, window, lead=lead))
        return np.concatenate(out)

    def formula(self, row: int, seen: Sequence[int], cap: float = 0.0, sinks: np.ndarray | None = None) -> np.ndarray:
        """[H, Dv] in float64."""
        h, kv, _, _ = self.heads
        q, k, v = self.q[row].astype(np.float64), self.k[seen].astype(np.float64), self.v[seen].astype(np.float64)
        k, v = (m.repeat(h // kv, axis=1) for m in (k, v))
        scores = np.einsum("hd,thd->ht", q, k) * self.scale
        scores = cap * np.tanh(scores / cap) if cap else scores
        peak = scores.max(1, keepdims=True) if sinks is None else np.maximum(scores.max(1), sinks)[:, None]
        weights = np.exp(scores - peak)
        total = weights.sum(1, keepdims=True) + (0 if sinks is None else np.exp(sinks[:, None] - peak))
        return np.einsum("ht,thd->hd", weights / total, v)


def path_to(parents: Sequence[int], row: int) -> list[int]:
    path = []
    while row >= 0:
        path.append(row)
        row = parents[row]
    return path[::-1]


def random_tree(rows: int, draw: np.random.Generator) -> list[int]:
    """Parents; long chains, wide stars and all between, some with several roots."""
    reach = int(draw.integers(1, rows + 1))
    return [-1, *(int(draw.integers(max(-1, i - reach), i)) for i in range(1, rows))]


def in_bytes(m: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """m: float32 [..., D] -> integers, and the float16 scale of every number's block; both float64 [..., D]"""
    blocks = np.pad(m, [(0, 0)] * (m.ndim - 1) + [(0, -m.shape[-1] % block)]).reshape(*m.shape[:-1], -1, block)
    scale = (np.abs(blocks).max(-1, keepdims=True) / np.float32(127)).astype(np.float16).astype(np.float32)
    integers = np.clip(np.round(blocks * (1 / scale)), -127, 127)
    return tuple(
        x.reshape(*m.shape[:-1], -1)[..., : m.shape[-1]].astype(np.float64)
        for x in (integers, np.broadcast_to(scale, blocks.shape))
    )
