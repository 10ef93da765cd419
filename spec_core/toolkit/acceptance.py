"""Estimates of a drafter's acceptance rate in a sequence: decayed counts with a prior."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import attrs


@attrs.define
class AcceptanceEstimate:
    """Estimated share of tested draft tokens that are accepted: (accepted + weight x prior) / (tested + weight).

    accepted, tested: counts that decay. prior: the share expected before any test. weight: number of tests that
    the prior counts as. decay: the factor by which ``fade`` multiplies the counts.
    """

    accepted: float = 0.0
    tested: float = 0.0
    prior: float = 0.9
    weight: float = 4.0
    decay: float = 0.95

    @property
    def value(self) -> float:
        """The share, with its own prior; max 1."""
        return self.against(self.prior)

    def against(self, prior: float) -> float:
        """The estimate with another prior; max 1."""
        return min(1.0, (self.accepted + self.weight * prior) / (self.tested + self.weight))

    def fade(self) -> None:
        """Decay the counts, in every step, with or without a draft: the value recovers after a run of rejections."""
        self.accepted *= self.decay
        self.tested *= self.decay

    def add(self, accepted: float, tested: float) -> None:
        """Add to the counts."""
        self.accepted += accepted
        self.tested += tested

    def learn(self, drafted: int, accepted: int) -> None:
        """Count a chain: accepted positions and the first rejected one were tested, later ones were not."""
        self.add(accepted, min(drafted, accepted + 1))


@attrs.define(eq=False)
class AcceptanceEstimates:
    """One estimate per kind of draft, for example per length of the match that the draft follows.

    prior: expected share of a kind; equal for all kinds of one group. group: kinds of one group share counts.
    weight, decay: as in ``AcceptanceEstimate``.
    """

    prior: Callable[[Any], float]
    weight: float = 4.0
    decay: float = 0.98
    group: Callable[[Any], Hashable] = attrs.field(default=lambda kind: kind)
    counts: dict[Hashable, AcceptanceEstimate] = attrs.field(factory=dict, init=False)

    def of(self, kind: Any) -> AcceptanceEstimate:
        """The estimate of a kind."""
        key = self.group(kind)
        estimate = self.counts.get(key)
        if estimate is None:
            estimate = self.counts[key] = AcceptanceEstimate(weight=self.weight, decay=self.decay)
        return estimate

    def value(self, kind: Any) -> float:
        return self.of(kind).against(self.prior(kind))

    def learn(self, kind: Any, accepted: float, tested: float = 1.0) -> None:
        """Fade the counts of this kind, then add to them. tested: 1 for a token, or the probability it was given."""
        estimate = self.of(kind)
        estimate.fade()
        estimate.add(accepted, tested)


def match_estimates(weight: float, decay: float) -> AcceptanceEstimates:
    """Estimates by the length of the match that a draft follows: a longer match has a higher prior."""
    return AcceptanceEstimates(match_prior, weight, decay, match_group)


def match_prior(match: int) -> float:
    """Expected acceptance of a token after a match of this length: 0.33 for 1, 0.5 for 2, 0.83 for 10."""
    return 1 - 1 / (1 + match / 2)


def match_group(match: int) -> int:
    """Match lengths that share counts: 1, 2, 3, 4-7, 8-15, ..."""
    return match if match < 4 else 1 << (match.bit_length() - 1)
