"""How likely drafts are accepted: a rate of the sequence, on two time scales, and a slow shape of the method.

The chance of the i-th token of a draft, given those before it, is the sequence's rate times the method's shape at i.
"""

from __future__ import annotations

import attrs

PRIOR = 0.6
FAST, STEADY, SLOW, SHAPE = 0.12, 0.04, 0.02, 0.03
"""Weights of one tested token: in the two rates of its sequence, in the rate of the method, in the shape."""
APART = 0.33
"""Where the quick rate is this far from the steady one, the text has changed: the steady one restarts from it."""
LOW, HIGH = 0.02, 0.98
EVERY = 3
"""Drafts of which one is looked at by position."""
REFRESH = 63
"""Drafts after which the shape is used anew."""


@attrs.define
class Rate:
    """Of one method in one sequence: the steady average of tested tokens counts, until the quick one leaves it."""

    value: float
    quick: float

    def learn(self, tested: int, accepted: int) -> None:
        self.quick = moved(self.quick, tested, accepted, FAST)
        self.value = moved(self.value, tested, accepted, STEADY)
        if not -APART < self.quick - self.value < APART:
            self.value = self.quick

    def trust(self) -> None:
        """A probe was accepted whole: the text may have changed to one that is easy."""
        self.value = self.quick = (1.0 + self.quick) / 2


@attrs.define
class Shape:
    """Of one method, over all sequences.

    rate: where a new sequence begins. chances, tests: by position, a slow average, and how often it was tested.
    survival: product of relative chances up to a position, [1, ...]; a rate's powers times it are chances of paths.
    """

    rate: float = PRIOR
    chances: list[float] = attrs.field(factory=list)
    tests: list[int] = attrs.field(factory=list)
    survival: list[float] = attrs.field(factory=lambda: [1.0])
    drafts: int = 0

    def learn(self, tested: int, accepted: int) -> None:
        """A draft of which ``tested`` positions were judged, all but the last of them or all ``accepted``.

        Positions are looked at in some drafts only: they change slowly.
        """
        self.rate = moved(self.rate, tested, accepted, SLOW)
        self.drafts += 1
        if self.drafts % EVERY == 0:
            self._positions(tested, accepted)
        if self.drafts % REFRESH == 0:
            self._refresh()

    def _positions(self, tested: int, accepted: int) -> None:
        chances = self.chances
        while len(chances) < tested:
            chances.append(chances[-1] if chances else PRIOR)
            self.tests.append(0)
        for i in range(tested):
            self.tests[i] += 1
        for i in range(accepted):
            chances[i] += SHAPE * (1.0 - chances[i])
        if tested > accepted:
            chances[accepted] -= SHAPE * chances[accepted]

    def _refresh(self) -> None:
        """Chances against their mean over what was tested; a position that was seldom tested is as the mean."""
        both = list(zip(self.chances, self.tests, strict=True))
        mean = max(LOW, sum(chance * times for chance, times in both) / sum(self.tests))
        self.survival = [1.0]
        for chance, times in both:
            apart = (min(1.5, max(0.5, chance / mean)) - 1.0) * times / (times + REFRESH)
            self.survival.append(self.survival[-1] * (1.0 + apart))

    def relative(self, length: int) -> list[float]:
        """``survival`` for paths of up to ``length``; beyond what is known it stays as it is."""
        if len(self.survival) <= length:
            self.survival += [self.survival[-1]] * (length + 1 - len(self.survival))
        return self.survival


def moved(rate: float, tested: int, accepted: int, weight: float) -> float:
    """A rate after one more draft; it stays between ``LOW`` and ``HIGH``."""
    rate = 1.0 - (1.0 - rate) * (1.0 - weight) ** accepted
    if tested > accepted:
        rate *= 1.0 - weight
    return LOW if rate < LOW else HIGH if rate > HIGH else rate
