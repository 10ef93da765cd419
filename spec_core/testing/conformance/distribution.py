"""The distribution of short texts, counted over many seeds and compared with the exact one.

The target is a random table, so its text is a Markov chain and every marginal is a product of small matrices.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.contract.draft_step import DraftStep
from spec_core.contract.kinds import Proposal
from spec_core.contract.request import Request
from spec_core.contract.rows import Rows
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Compat, Draft, Needs
from spec_core.hookspecs import hookimpl
from spec_core.sampling.parameters import Sampling
from spec_core.testing.conformance.base import expect
from spec_core.testing.quick import QuickTarget

VOCAB, LENGTH, TEMPERATURE = 5, 4, 1.0
IMPROBABLE = 1e-6
"""Counts with a lower p-value are taken as a different distribution; the seeds are fixed."""


def small_target() -> QuickTarget:
    return QuickTarget(seed=3, vocab=VOCAB, period=3, sharpness=1.2)


def requests(count: int) -> list[Request]:
    sampling = Sampling(temperature=TEMPERATURE)
    return [Request([1], max_tokens=LENGTH, seed=seed, sampling=sampling, name=str(seed)) for seed in range(count)]


def transitions(target: QuickTarget) -> list[np.ndarray]:
    """[V, V] for every output position t >= 1: row x is the distribution of the token after x."""
    rows = [torch.softmax(target.table[t % target.period].double() / TEMPERATURE, -1) for t in range(1, LENGTH)]
    return [row.numpy() for row in rows]


def pairs(target: QuickTarget) -> list[np.ndarray]:
    """[V, V] exact distribution of (x_t, x_t+1) for t = 0 ... LENGTH - 2, after the prompt [1]."""
    now = torch.softmax(target.table[0].double()[1] / TEMPERATURE, -1).numpy()
    exact = []
    for step in transitions(target):
        exact.append(now[:, None] * step)
        now = now @ step
    return exact


def check_distribution(texts: list[list[int]], target: QuickTarget, what: str) -> None:
    """Raise Found unless tokens and pairs of neighbours have the target's distribution."""
    tokens = np.array(texts)
    for t, exact in enumerate(pairs(target)):
        both = np.bincount(tokens[:, t] * VOCAB + tokens[:, t + 1], minlength=VOCAB * VOCAB)
        for counts, expected, name in (
            (both.reshape(VOCAB, VOCAB).sum(0), exact.sum(0), f"token {t + 1}"),
            (both, exact.ravel(), f"tokens {t} and {t + 1} together"),
        ):
            p = chance(counts, expected)
            away = 0.5 * np.abs(counts / counts.sum() - expected).sum()
            expect(p > IMPROBABLE, f"{what}: {name} of {len(texts)} texts, total variation {away:.3f}, p = {p:.1g}")


def chance(counts: np.ndarray, distribution: np.ndarray) -> float:
    """p-value of counts (Pearson's chi-square); rare cells are counted together."""
    expected = counts.sum() * distribution
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], max(expected[rare].sum(), 1e-9))
    statistic = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor([(len(counts) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@attrs.define(eq=False)
class Replays:
    """Drafts the text of the first request with the same seed, like a store that all sequences share."""

    said: dict[int, tuple[Sequence, list[int]]] = attrs.field(factory=dict)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"})

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            _, text = self.said.get(seq.seed, (seq, []))
            ids = text[len(seq.tokens) :][:budget]
            if ids and text[: len(seq.tokens)] == seq.tokens:
                step.propose(seq, Draft(ids))

    @hookimpl
    def process(self, rows: Rows) -> None:
        for seq, _ in rows.by_sequence():
            first, _ = self.said.setdefault(seq.seed, (seq, []))
            if first is seq:
                self.said[seq.seed] = seq, list(seq.tokens)


@attrs.define(eq=False)
class Near:
    """Drafts from a table near the target's: drawn, or its best tokens, as a chain or a tree.

    extends: it extends the drafts of others.
    """

    target: QuickTarget
    proposal: Proposal = "sampled"
    tree: bool = False
    length: int = 3
    extends: bool = False
    table: Tensor = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        noise = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(5))
        self.table = torch.softmax((0.7 * self.target.table.mean(0) + 1.5 * noise).double(), -1)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={self.proposal}, needs=Needs(trees=self.tree), extends=self.extends)

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, draft, leaf, budget in step.leaves:
            path = [draft.ids[i] for i in draft.ancestry(leaf)]
            step.extend(seq, self._chain(step, seq, budget, path), leaf)
        for seq, budget in step.undrafted:
            tree = self.tree and budget > 1 and step.nodes(seq) >= 4
            step.propose(seq, self._tree(seq) if tree else self._chain(step, seq, budget))

    def _chain(self, step: DraftStep, seq: Sequence, budget: int, path: Iterable[int] = ()) -> Draft:
        """path: drafted tokens before it."""
        ids, rows = [seq.tokens[-1], *path], []
        before = len(ids)
        for i in range(before - 1, before - 1 + min(budget, self.length)):
            rows.append(self.table[ids[-1]])
            ids.append(int((rows[-1].log() + (0 if self.proposal == "deterministic" else step.noise(seq, i))).argmax()))
        return Draft(
            ids[before:], proposal=self.proposal, probs=torch.stack(rows) if self.proposal == "sampled" else None
        )

    def _tree(self, seq: Sequence) -> Draft:
        """The two best tokens after the last one, and two after the better of them."""
        first = self.table[seq.tokens[-1]].topk(2).indices.tolist()
        second = self.table[first[0]].topk(2).indices.tolist()
        return Draft([*first, *second], parents=[-1, -1, 0, 0])


def extending_pair(target: QuickTarget, kind: Proposal, then: Proposal) -> list[tuple[str, Near]]:
    """A drafter of one token, and one of another kind that goes on after it."""
    return [("near", Near(target, kind, length=1)), ("further", Near(target, then, length=2, extends=True))]
