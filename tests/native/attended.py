"""Random texts of attention: queries, keys and values, their caches, how their rows attend, and the formula in float64.

A case is drawn from a seed and a form, and runs on every executor: native kernels of an instruction set, and torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from ops_library import KV, Chain, attend, here, same
from spec_kernels.model.attention import attention
from spec_kernels.model.shapes import HeadShape

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
LATENT_HEADS = [(4, 1, 24, 16), (1, 1, 33, 33), (6, 1, 84, 20), (32, 1, 576, 512), (40, 1, 40, 7), (7, 1, 130, 129)]
"""Query heads, one key head, the width of a key, and its last numbers that are the value."""
KINDS = ("float32", "float16", "q8")
SMALL = (6, 2, 32, 32)
PLAIN, LATENTS, LEADS, ANCHORED = FORMS = "plain", "latents", "leads", "anchored"
"""Keys and values apart; values that are a part of the keys; rows that see the first positions as well as their window;
windows that end at the first row's position."""
CAPS = [(0.0, None), (0.7, None), (0.0, (-3, 0, 4, 90, 1, -90)), (2.0, (5, -1, 0, 2, -2, 1))]
"""Caps of scores, and sinks: far below the scores, among them, and far above."""


class Text:
    """q, k and v of n tokens, by the same seed the same."""

    latent = False

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
        cache = KV(kind, kv, dk, dv, len(self.q) + 19, isa, self.latent)
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

    def in_bytes(self, seen: Sequence[int]) -> tuple[np.ndarray, ...]:
        """Keys, their scales, values, and theirs, in a q8 cache: keys in blocks of 32, a value with one scale."""
        return *in_bytes(self.k[seen], 32), *in_bytes(self.v[seen], 16 * -(-self.heads[3] // 16))

    def byte_formula(self, row: int, seen: Sequence[int], chunk: int = 64) -> np.ndarray:
        """Attention of a q8 cache: queries as bytes in blocks of 32 dimensions, the weights of the softmax times
        the scales of values as bytes in chunks of positions. [H, Dv] in float64."""
        h, kv, _, dv = self.heads
        q, q_scale = in_bytes(self.q[row], 32)
        k, k_scale, v, v_scale = (m.repeat(h // kv, axis=1) for m in self.in_bytes(seen))
        scores = np.einsum("hd,thd->ht", q * q_scale, k * k_scale) * self.scale
        weights = np.exp(scores - scores.max(1, keepdims=True))
        shares, out = weights * v_scale[..., 0].T, np.zeros((h, dv))
        for i in range(0, len(seen), chunk):
            scale = shares[:, i : i + chunk].max(1, keepdims=True) / 127
            out += np.einsum("ht,thd->hd", np.round(shares[:, i : i + chunk] / scale), v[i : i + chunk]) * scale
        return out / weights.sum(1, keepdims=True)


class Latents(Text):
    """q and k of n tokens; v are the last numbers of k."""

    latent = True

    def __init__(self, n: int, heads: tuple, seed: int = 0) -> None:
        super().__init__(n, heads, seed)
        self.v = self.k[..., heads[2] - heads[3] :]

    def in_bytes(self, seen: Sequence[int]) -> tuple[np.ndarray, ...]:
        """Keys in blocks of 32 up to the block in which the latent begins; the rest with one scale."""
        _, _, dk, dv = self.heads
        begin = (dk - dv) // 32 * 32
        parts = [in_bytes(self.k[seen][..., :begin], 32), in_bytes(self.k[seen][..., begin:], 1024)]
        k, k_scale = (np.concatenate([part[i] for part in parts], -1) for i in (0, 1))
        return k, k_scale, k[..., dk - dv :], k_scale[..., -1:]


@dataclass(frozen=True)
class Case:
    """A text whose rows from ``start`` on attend. parents: of the rows of a tree, or None."""

    text: Text
    kind: str
    start: int
    parents: list[int] | None = None
    window: int = 0
    lead: int = 0
    cap: float = 0.0
    sinks: np.ndarray | None = None
    causal: bool = True
    anchored: bool = False

    @property
    def rows(self) -> int:
        return len(self.text.q) - self.start

    def native(self, isa: str, jobs: Sequence[tuple[int, int]] | None = None) -> np.ndarray:
        """[rows, H, Dv] by the kernels of an instruction set, all rows stored before."""
        chain = Chain(0, self.rows, self.start, self.parents, self.causal)
        options = {name: getattr(self, name) for name in ("window", "lead", "cap", "sinks", "anchored")}
        text = self.text
        return attend(
            text.cache(isa, self.kind, range(len(text.q))),
            text.q[self.start :],
            chain,
            text.scale,
            jobs=jobs,
            **options,
        )

    def torch(self) -> np.ndarray:
        """The same by the reference; not of a tree."""
        (h, kv, dk, _), text = self.text.heads, self.text
        shape = HeadShape(h, kv, dk, dk, text.scale, self.window, self.cap, lead=self.lead)
        keys, values = (torch.tensor(m).transpose(0, 1) for m in (text.k, text.v))
        sinks = None if self.sinks is None else torch.tensor(self.sinks)
        last, anchor = None if self.causal else len(text.q) - 1, self.start if self.anchored else None
        return attention(
            torch.tensor(text.q[self.start :]), keys, values, self.start, shape, last, sinks, anchor
        ).numpy()

    def formula(self) -> np.ndarray:
        """The same in float64."""
        ends = [i + 1 if self.causal else len(self.text.q) for i in range(self.start, len(self.text.q))]
        return np.stack(
            [
                self.text.formula(self.start + i, self._seen_positions(self.start + i, end), self.cap, self.sinks)
                for i, end in enumerate(ends)
            ]
        )

    def _seen_positions(self, position: int, end: int) -> list[int]:
        after = (self.start if self.anchored else position) - self.window if self.window else -1
        return [p for p in range(end) if p > after or p < self.lead]


def draw_text(form: str, seed: int, n: int) -> Text:
    """A text of n tokens; shapes of heads in turns, so that all of them occur."""
    if form == LATENTS or (form == LEADS and seed % 4 == 3):
        return Latents(n, LATENT_HEADS[seed % len(LATENT_HEADS)], seed)
    return Text(n, HEADS[seed % len(HEADS)], seed)


def draw_case(form: str, seed: int) -> Case:
    """A chain with options that are drawn, near the beginning of a text and far from it."""
    draw = np.random.default_rng(seed)
    start, rows = (
        int(draw.choice([0, draw.integers(150), draw.integers(900 if form == LEADS else 450)])),
        draw.choice([1, 8, 37]),
    )
    text, (cap, sinks) = draw_text(form, seed, start + int(rows)), CAPS[draw.integers(len(CAPS))]
    return Case(
        text,
        KINDS[seed % 3],
        start,
        window=int(draw.choice([0, 0, 1, 7, 16, 17, 40] if form in (PLAIN, LATENTS) else [1, 5, 16, 40, 100])),
        lead=int(draw.choice([1, 4, 16, 17, 64, 70])) if form == LEADS else 0,
        cap=cap,
        sinks=None if sinks is None else np.resize(np.array(sinks, np.float32), text.heads[0]),
        causal=bool(draw.random() < (0.5 if form == ANCHORED else 0.8)),
        anchored=form == ANCHORED,
    )


def draw_tree(form: str, seed: int) -> Case:
    """A tree of random form after a short or a long text."""
    draw = np.random.default_rng(seed)
    start, rows = int(draw.choice([draw.integers(40), 130, 500 if form == LEADS else 140])), int(draw.integers(2, 30))
    case = draw_case(form, seed)
    window = int(draw.choice([0, 0, 5, 20, 100, 150])) if form in (PLAIN, LATENTS) else case.window
    text, parents = draw_text(form, seed, start + rows), random_tree(rows, draw)
    return replace(case, text=text, start=start, parents=parents, window=window, cap=0.0, sinks=None, causal=True)


def on_every_isa(compute: Callable[[str], np.ndarray]) -> np.ndarray:
    """The result, whose bits must be the same on all instruction sets of this processor."""
    first, *others = here()
    expected = compute(first)
    for isa in others:
        assert same(expected, compute(isa)), f"{isa} and {first} differ"
    return expected


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
