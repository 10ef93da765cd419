"""A constraint on token ids, for tests: it needs no text, so it fits every target."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import attrs
import numpy as np

from spec_core.contract.matcher import words
from spec_core.contract.target import Target


@attrs.frozen
class ToyConstraint:
    """Some tokens after each pair of tokens, chosen by ``seed``; the text is complete after ``length`` tokens.

    share: of the vocabulary that is allowed, on average; at least one token is. end: the text may end at every position
    divisible by this, from its second on.
    """

    seed: int = 0
    share: float = 0.3
    length: int = 1 << 30
    end: int = 5

    def start(self, target: Target) -> ToyMatcher:
        return ToyMatcher(self, target.info.vocab, target.info.eog)


@attrs.define(eq=False)
class ToyMatcher:
    constraint: ToyConstraint
    vocab: int
    eog: frozenset[int]
    tokens: list[int] = attrs.field(factory=list)

    @property
    def complete(self) -> bool:
        return len(self.tokens) >= self.constraint.length

    def advance(self, token: int) -> bool:
        if self.complete or not self._allowed_tokens(self.tokens)[token]:
            return False
        self.tokens.append(token)
        return True

    def rollback(self, count: int) -> None:
        del self.tokens[len(self.tokens) - count :]

    def masks(self, drafted: Sequence[int]) -> np.ndarray:
        rows, text = [], list(self.tokens)
        for token in (*drafted, None):
            rows.append(self._allowed_tokens(text))
            if token is None or not rows[-1][token] or len(text) + 1 >= self.constraint.length:
                break
            text.append(token)
        bits = np.zeros((len(rows), 32 * words(self.vocab)), np.bool_)
        bits[:, : self.vocab] = rows
        return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)

    def forced_tokens(self, count_max: int) -> list[int]:
        text = list(self.tokens)
        while len(text) - len(self.tokens) < count_max and len(text) < self.constraint.length:
            only = self._allowed_tokens(text).nonzero()[0]
            if len(only) != 1:
                break
            text.append(int(only[0]))
        return text[len(self.tokens) :]

    def _allowed_tokens(self, text: Sequence[int]) -> np.ndarray:
        """[V] bool."""
        key = crc32(np.array([self.constraint.seed, *text[-2:]], np.int64).tobytes())
        rng = np.random.default_rng(key)
        row = rng.random(self.vocab) < self.constraint.share
        row[int(rng.integers(self.vocab))] = True
        row[list(self.eog)] = len(text) > 0 and len(text) % self.constraint.end == 0
        if not row.any():
            row[next(i for i in range(self.vocab) if i not in self.eog)] = True
        return row
