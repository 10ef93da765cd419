"""How a drafter's proposals fared in a sequence so far: decayed counts over a prior."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import attrs


@attrs.define
class AcceptanceEstimate:
    """Estimated share of tested drafts that are accepted: (accepted + weight x prior) / (tested + weight).

    accepted, tested: counts that decay. prior: the share expected before anything was tested. weight: how many tests
    the prior is worth. decay: the part of the counts that stays whenever ``fade`` is called.
    """

    accepted: float = 0.0
    tested: float = 0.0
    prior: float = 0.9
    weight: float = 4.0
    decay: float = 0.95

    @property
    def value(self) -> float:
        """The share, over its own prior; at most 1."""
        return self.against(self.prior)

    def against(self, prior: float) -> float:
        """The estimate over another prior, at most 1."""
        return min(1.0, (self.accepted + self.weight * prior) / (self.tested + self.weight))

    def fade(self) -> None:
        """A bad stretch lowers the value and is forgotten, drafting or not."""
        self.accepted *= self.decay
        self.tested *= self.decay

    def add(self, accepted: float, tested: float) -> None:
        """Count some more."""
        self.accepted += accepted
        self.tested += tested

    def learn(self, drafted: int, accepted: int) -> None:
        """A chain: accepted positions were tested, and the first rejected one; nothing after it was."""
        self.add(accepted, min(drafted, accepted + 1))


@attrs.define(eq=False)
class AcceptanceEstimates:
    """One estimate for every kind of draft, such as every length of the match that it follows.

    prior: the share expected of a kind. group: kinds that are counted together have the same.
    weight, decay: as of ``AcceptanceEstimate``.
    """

    prior: Callable[[Any], float]
    weight: float = 4.0
    decay: float = 0.98
    group: Callable[[Any], Hashable] = attrs.field(default=lambda kind: kind)
    counts: dict[Hashable, AcceptanceEstimate] = attrs.field(factory=dict, init=False)

    def of(self, kind: Any) -> AcceptanceEstimate:
        """The counts of a kind."""
        key = self.group(kind)
        found = self.counts.get(key)
        if found is None:
            found = self.counts[key] = AcceptanceEstimate(weight=self.weight, decay=self.decay)
        return found

    def value(self, kind: Any) -> float:
        return self.of(kind).against(self.prior(kind))

    def learn(self, kind: Any, accepted: float, tested: float = 1.0) -> None:
        """What was counted of this kind before fades. tested: 1 for a token, or the chance it was given."""
        estimate = self.of(kind)
        estimate.fade()
        estimate.add(accepted, tested)


def match_estimates(weight: float, decay: float) -> AcceptanceEstimates:
    """Estimates by the length of the match that a draft follows: the longer the match, the higher the prior."""
    return AcceptanceEstimates(match_prior, weight, decay, match_group)


def match_prior(match: int) -> float:
    """Chance expected of what follows a match of this length: 0.33 for 1, 0.5 for 2, 0.83 for 10."""
    return 1 - 1 / (1 + match / 2)


def match_group(match: int) -> int:
    """Match lengths that are counted together: 1, 2, 3, 4-7, 8-15, ..."""
    return match if match < 4 else 1 << (match.bit_length() - 1)
