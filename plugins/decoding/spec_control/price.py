"""The price that a method is given against the chance at which one more token pays: methods misjudge their chances."""

from __future__ import annotations

from math import exp

import attrs

RATE = 0.02
"""By how much one draft moves the logarithm of the factor."""
LOW, HIGH = 0.2, 2.0
"""Of the factor."""
NEEDED_MAX = 0.8
"""Of the share of last tokens that must be right: none would suffice where a row costs as much as a step."""
FADE = 0.99
"""Of tokens and time of earlier steps, with each that follows."""


@attrs.define
class Factor:
    """By which the price of a method is multiplied.

    A method stops by its own estimate of chances, which may be too low or too high. The last token of a chain that
    ended before its limit is one that was just likely enough. If such tokens are accepted more often than they must be
    to pay, the factor falls, and the chains become longer; otherwise it rises: stochastic approximation (Robbins &
    Monro, "A Stochastic Approximation Method", 1951).

    needed: share of them that must be accepted.
    """

    value: float = 1.0
    needed: float = 0.0
    _tokens: float = 0.0
    _spent: float = 0.0

    def require(self, cost: float) -> None:
        """cost: of one more token, in plain steps. In a step that yields more tokens than its time, that is more."""
        rate = self._tokens / self._spent if self._spent else 1.0
        self.needed = min(NEEDED_MAX, cost * max(1.0, rate))

    def gained(self, tokens: float, spent: float, steps: int) -> None:
        """Steps with drafts took so many plain steps."""
        left = FADE**steps
        self._tokens = self._tokens * left + tokens
        self._spent = self._spent * left + spent

    def learn(self, drafts: int, whole: int) -> None:
        """So many chains ended before their limit; of some, the last token was accepted."""
        moved = self.value * exp(RATE * (self.needed * drafts - whole))
        self.value = LOW if moved < LOW else HIGH if moved > HIGH else moved
