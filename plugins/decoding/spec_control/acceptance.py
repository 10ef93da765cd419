"""How likely drafts are accepted: a rate of the sequence, on two time scales, and a slow shape of the method.

The odds of the i-th token of a draft, given those before it, are those of the sequence's rate times what the method's
shape says of i: behind some right tokens the next one is often easier.
"""

from __future__ import annotations

import attrs

PRIOR = 0.6
FAST, STEADY, SHAPE = 0.12, 0.04, 0.01
"""Weights of one tested token: in the two rates of its sequence, in the shape."""
TESTED, TESTED_MAX = 4.0, 200.0
"""Tokens for which the rate of a method counts at first, and in the end: it is their mean until then."""
APART = 0.33
"""Where the quick rate is this far from the steady one, the text has changed: the steady one restarts from it."""
LOW, HIGH = 0.02, 0.98
EVERY = 3
"""Drafts of which one is looked at by position."""
REFRESH = 63
"""Drafts after which the shape is used anew, once there are as many; at first it is after fewer."""
SELDOM = 24
"""A position that was tested as often counts half."""
GRAIN = 64
"""Number of bins for acceptance rates between 0 and 1; what follows from a rate is cached by bin."""


@attrs.define
class Rate:
    """Of one method in one sequence: the steady average of tested tokens counts, until the quick one leaves it.

    tested: how many there were.
    """

    value: float
    quick: float
    tested: int = 0

    def learn(self, tested: int, accepted: int) -> None:
        self.tested += tested
        self.quick = moved(self.quick, tested, accepted, FAST)
        self.value = moved(self.value, tested, accepted, STEADY)
        if not -APART < self.quick - self.value < APART:
            self.value = self.quick

    def learn_all(self, tested: int, accepted: int) -> None:
        """Of several drafts, whose order is not known."""
        self.tested += tested
        if tested:
            self.quick = averaged(self.quick, tested, accepted, FAST)
            self.value = averaged(self.value, tested, accepted, STEADY)
            if not -APART < self.quick - self.value < APART:
                self.value = self.quick

    def trust(self) -> None:
        """A probe was accepted whole: the text may have changed to one that is easy."""
        self.value = self.quick = (1.0 + self.quick) / 2


@attrs.define
class Shape:
    """Of one method, over all sequences.

    rate: where a new sequence begins. chances, tests: by position, a slow average, and how often it was tested.
    tested: tokens for which the rate counts.
    easier: by position, odds of its token against the mean of all; the last holds for all behind it.
    """

    rate: float = PRIOR
    chances: list[float] = attrs.field(factory=list)
    tests: list[int] = attrs.field(factory=list)
    easier: list[float] = attrs.field(factory=lambda: [1.0])
    drafts: int = 0
    tested: float = TESTED
    _refreshed: int = 0
    _paths: dict[int, list[float]] = attrs.field(factory=dict)

    def learn_rate(self, tested: int, accepted: int) -> None:
        """So many tokens were tested, of one draft or of several."""
        self.tested = min(TESTED_MAX, self.tested + tested)
        self.rate += (accepted - tested * self.rate) / max(self.tested, tested)

    def learn(self, tested: int, accepted: int) -> None:
        """A draft of which ``tested`` positions were judged, all but the last of them or all ``accepted``.

        Later on positions are looked at in some drafts only: they change slowly.
        """
        self.drafts += 1
        if self.drafts < REFRESH or self.drafts % EVERY == 0:
            self._positions(tested, accepted)
        if self.drafts >= self._refreshed + min(REFRESH, 8 + self._refreshed):
            self._refresh()

    def _positions(self, tested: int, accepted: int) -> None:
        chances, tests = self.chances, self.tests
        while len(chances) < tested:
            chances.append(chances[-1] if chances else PRIOR)
            tests.append(0)
        for i in range(tested):
            tests[i] += 1
            chances[i] += max(SHAPE, 1.0 / (tests[i] + 2)) * ((i < accepted) - chances[i])

    def _refresh(self) -> None:
        """Odds against those of the mean over what was tested; a position that was seldom tested is as the mean."""
        self._refreshed = self.drafts
        both = list(zip(self.chances, self.tests, strict=True))
        mean = odds(sum(chance * times for chance, times in both) / sum(self.tests))
        self.easier = [(odds(chance) / mean) ** (times / (times + SELDOM)) for chance, times in both]
        self._paths.clear()

    def path(self, rate: float, length: int) -> list[float]:
        """Chance that the first k tokens of a draft are accepted, for k = 0 to ``length`` or more, at this rate.

        rate: in steps of 1 / ``GRAIN``.
        """
        key = int(rate * GRAIN)
        found = self._paths.get(key)
        if found is None or len(found) <= length:
            found = self._paths[key] = self._path((key + 0.5) / GRAIN, length)
        return found

    def _path(self, rate: float, length: int) -> list[float]:
        mean, easier = odds(rate), self.easier
        found, survival = [1.0], 1.0
        for i in range(length):
            each = mean * (easier[i] if i < len(easier) else easier[-1])
            survival *= each / (1.0 + each)
            found.append(survival)
        return found


def odds(chance: float) -> float:
    chance = LOW if chance < LOW else HIGH if chance > HIGH else chance
    return chance / (1.0 - chance)


def moved(rate: float, tested: int, accepted: int, weight: float) -> float:
    """A rate after one more draft; it stays between ``LOW`` and ``HIGH``."""
    rate = 1.0 - (1.0 - rate) * (1.0 - weight) ** accepted
    if tested > accepted:
        rate *= 1.0 - weight
    return LOW if rate < LOW else HIGH if rate > HIGH else rate


def tested(depth: int, accepted: int) -> int:
    """Tokens of a path that were tested: the accepted ones, and the first that was not."""
    return accepted + (accepted < depth)


def averaged(rate: float, tested: int, accepted: int, weight: float) -> float:
    """A rate after tokens of which a share was accepted, in any order."""
    rate += (1.0 - (1.0 - weight) ** tested) * (accepted / tested - rate)
    return LOW if rate < LOW else HIGH if rate > HIGH else rate


def surviving(path: list[float], survival_min: float, length_max: int) -> tuple[int, float]:
    """Tokens up to ``length_max`` whose paths survive with at least this probability, and how many of them do."""
    length, tokens = 0, 0.0
    while length < length_max and path[length + 1] >= survival_min:
        length += 1
        tokens += path[length]
    return length, tokens
