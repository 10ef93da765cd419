"""An interpolated Kneser-Ney trigram over token ids: the baseline of a model's held-out loss.

Kneser and Ney, 1995, in the interpolated form of Chen and Goodman, 1998, with one discount per order.
"""

from __future__ import annotations

import attrs
import numpy as np


@attrs.frozen(eq=False)
class Counts:
    """Counts of the codes: sorted codes, and the count of each."""

    codes: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, weights: np.ndarray | None = None) -> Counts:
        unique, inverse = np.unique(codes, return_inverse=True)
        counts = np.bincount(inverse, weights=weights, minlength=len(unique)).astype(np.float64)
        return cls(unique, counts)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """Counts of these codes; 0 for a code that does not occur."""
        at = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[at] == codes, self.counts[at], 0.0)

    @property
    def discount(self) -> float:
        """n1 / (n1 + 2 n2): the discount of each count, whose mass goes to unseen events (Ney, Essen, Kneser, 1994)."""
        once, twice = np.sum(self.counts == 1), np.sum(self.counts == 2)
        return float(once / (once + 2 * twice)) if once else 0.5


class Trigram:
    """p(c | a, b) for ids below ``vocab``. Lower orders count distinct left neighbours, not occurrences."""

    def __init__(self, tokens: np.ndarray, vocab: int) -> None:
        t, self.vocab = tokens.astype(np.int64), vocab
        self.three = Counts.of((t[:-2] * vocab + t[1:-1]) * vocab + t[2:])
        self.two = Counts.of(self.three.codes % vocab**2)
        self.one = Counts.of(self.two.codes % vocab)
        self.after_two = self._contexts(self.three)
        self.after_one = self._contexts(self.two)
        self.total = self.one.counts.sum()

    def _contexts(self, grams: Counts) -> tuple[Counts, Counts]:
        """Total count and number of distinct successors of each context."""
        context = grams.codes // self.vocab
        return Counts.of(context, grams.counts), Counts.of(context)

    def p(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Probabilities of c after a, b, all int64 of one shape."""
        unigram = self._unigram(c)
        bigram = self._mix(b * self.vocab + c, self.two, self.after_one, unigram)
        return self._mix((a * self.vocab + b) * self.vocab + c, self.three, self.after_two, bigram)

    def _unigram(self, c: np.ndarray) -> np.ndarray:
        d = self.one.discount
        spread = d * len(self.one.codes) / self.vocab
        return (np.maximum(self.one(c) - d, 0) + spread) / self.total

    def _mix(self, codes: np.ndarray, grams: Counts, after: tuple[Counts, Counts], lower: np.ndarray) -> np.ndarray:
        """Discounted counts, with the remaining mass by the lower order; unseen contexts use the lower order only."""
        context, d = codes // self.vocab, grams.discount
        mass, kinds = after[0](context), after[1](context)
        seen = np.maximum(mass, 1)
        mixed = np.maximum(grams(codes) - d, 0) / seen + d * kinds / seen * lower
        return np.where(mass > 0, mixed, lower)

    def loss(self, tokens: np.ndarray) -> float:
        """Mean nats per token, from the third token on."""
        t = tokens.astype(np.int64)
        return float(-np.log(self.p(t[:-2], t[1:-1], t[2:])).mean())
