"""A rule's random numbers: private, counter-based, new in every step and for every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs
import numpy as np

from spec_core import Sequence, Step


class Coins(Protocol):
    """The random decisions of a rule. Tests integrate over them exactly."""

    def accept(self, p: float, q: float) -> bool:
        """True with probability min(1, p / q); never for p = 0."""

    def draw(self, weights: np.ndarray) -> int:
        """An index with probability proportional to its weight. weights: [V] float64, not all 0."""


@attrs.define
class Uniforms:
    """Coins from uniforms in (0, 1), one uniform per decision."""

    values: Iterator[float]

    def accept(self, p: float, q: float) -> bool:
        return next(self.values) * q < p

    def draw(self, weights: np.ndarray) -> int:
        return inverse(weights, next(self.values))


def inverse(weights: np.ndarray, u: float) -> int:
    """The index at which the cumulative sum passes ``u`` of the total; never one of weight 0. weights: [V] float64."""
    sums = weights.cumsum()
    at = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return at if at < len(sums) else int(weights.nonzero()[0][-1])


def coins(step: Step, seq: Sequence, drafted: int) -> Uniforms:
    """Enough uniforms to test every drafted token and the root, and to draw once at every node."""
    return Uniforms(iter(step.coins(seq, 2 * (drafted + 1)).tolist()))
