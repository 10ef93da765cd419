"""What the controller knows of a sequence, what it grants, and a step that was made."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from spec_control.acceptance import Rate
from spec_control.arm import TRIALS, UNSURE, Arm

QUICK, GAIN_MAX = 0.08, 2.0
"""Weight of a draft in what drafts gain for a sequence; and what is believed of a new one at most, in plain steps."""
LOSING, NEW = 3.0, 8
"""Plain steps lost since the best moment of a sequence, or drafts of it, after which its drafts may be said to lose;
the latter also tested tokens of a method before it must be sure of more."""


@attrs.define(eq=False)
class Track:
    """A sequence. arms: the methods that it may be drafted by, in their order.

    rates: {method: chance of a token}, of those that have drafted.
    whole: how many drafts in a row were accepted whole.
    gains: {method: plain steps that a draft gained, a quick average}. drafts: of all methods.
    lost: plain steps that it has lost since its best moment, in steps in which a method might draft.
    """

    arms: tuple[Arm, ...]
    rates: dict[str, Rate] = attrs.field(factory=dict)
    whole: int = 0
    gains: dict[str, float] = attrs.field(factory=dict)
    drafts: int = 0
    lost: float = 0.0

    def rate(self, arm: Arm) -> float:
        found = self.rates.get(arm.name)
        return arm.shape.rate if found is None else found.value

    def rating(self, arm: Arm) -> Rate:
        """Its rate, to learn from a draft; the first begins as the method's own."""
        found = self.rates.get(arm.name)
        if found is None:
            found = self.rates[arm.name] = Rate(arm.shape.rate, arm.shape.rate)
            arm.texts += 1
        return found

    def price(self, arm: Arm, price: float) -> float:
        """For a method that has drafted little for it, lower."""
        rate = self.rates.get(arm.name)
        return min(price, UNSURE) if rate is None or rate.tested < NEW else price

    def gain(self, arm: Arm) -> float:
        found = self.gains.get(arm.name)
        return min(arm.gain, GAIN_MAX) if found is None else found

    def pays(self, arm: Arm, batch: int) -> bool:
        """A method that stops by a price drafts where it is sure: what its drafts gained says more than their rate."""
        return arm.priced and arm.steps >= TRIALS and arm.net(batch, self.gain(arm)) > 0.0

    @property
    def loses(self) -> bool:
        """Its drafts are known to cost more than they gain."""
        return self.lost > LOSING or (self.drafts >= NEW and all(gain <= 0.0 for gain in self.gains.values()))

    def settled(self, steps: Iterable[tuple[float, float]], own: float) -> None:
        """Steps in which it might be drafted for, as in ``Sums``. own: plain steps that the controller took."""
        lost = self.lost + own
        for tokens, spent in steps:
            lost += spent - tokens
            if lost < 0.0:
                lost = 0.0
        self.lost = lost

    def gained(self, arm: Arm, gain: float, steps: int) -> None:
        """As of ``Arm``."""
        self.drafts += steps
        before = self.gain(arm)
        self.gains[arm.name] = before + (1.0 - (1.0 - QUICK) ** steps) * (gain - before)


@attrs.frozen
class Grant:
    """What a method may draft for a sequence. price: the min chance of a path at which one more token pays."""

    arm: Arm
    length: int
    price: float


Grants = tuple[Grant, ...]


@attrs.define
class Done:
    """A step of which only the time is missing.

    depth: positions of the longest sequence. rows: of the forward. tokens: emitted by all ``batch`` sequences.
    drafted: {method: tokens of its paths}. cold: first drafts of a method for a sequence, which
    evaluate what it had missed. stands: for so many plain steps like it. track: where there is but one sequence.
    """

    batch: int
    depth: int
    rows: int
    tokens: int
    drafted: dict[Arm, int]
    cold: int
    stands: int
    track: Track | None = None
