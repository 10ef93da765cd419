"""A cost that grows with a whole number, from what was measured of it; steps stay steps."""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from statistics import median

import attrs

RECENT = 21
"""Measurements kept of each number; their median counts."""
SURE = 3
"""Measurements of a number after which they count alone."""
UNSURE = 0.01
"""Weight of a number that was measured less often, beside one that was, where the two are in the wrong order."""
CLOSE = 0.005
"""A median that moves by less than this is left as it was."""
FIT = 4
"""Measurements of a number after which its median is taken anew, once it has as many."""

MEDIAN_ERROR = 1.57
"""Standard error of the median of n normal values: their mean distance from it, times this, by the root of n."""


@attrs.define
class Curve:
    """Costs by a whole number n, in plain steps.

    A measured n has the median of its last measurements, and costs never fall with n. Between two measured numbers
    the cost is linear. Beyond the last it grows as it did on average from the first, or by ``slope`` where only one
    number was measured. What was expected of a number counts beside its first measurements, as one may be disturbed.
    """

    slope: float = 0.0
    measured: dict[int, list[float]] = attrs.field(factory=dict)
    expected: dict[int, float] = attrs.field(factory=dict)
    added: int = 0
    typical: dict[int, float] = attrs.field(factory=dict)
    errors: dict[int, float] = attrs.field(factory=dict)
    numbers: list[int] = attrs.field(factory=list, init=False)
    values: list[float] = attrs.field(factory=list, init=False)

    def add(self, n: int, value: float, times: int = 1) -> None:
        """One more measurement, or as many as this is the median of."""
        recent = self.measured.get(n)
        if recent is None:
            recent = self.measured[n] = []
            self.expected[n] = self.at(n) if self.numbers else value
        recent += [value] * times
        self.added += 1
        del recent[:-RECENT]
        if len(recent) <= FIT or n not in self.typical or self.added % FIT == 0:
            self._fit(n)

    def forget(self, n: int, kept: int) -> None:
        """Keep the last ``kept`` measurements of ``n``, and what they say is expected."""
        del self.measured[n][:-kept]
        self.expected[n] = self.measured[n][0]

    def knows(self, n: int) -> bool:
        """Whether ``n`` itself was measured, often enough to be sure."""
        return self.times(n) >= SURE

    def below(self, n: int) -> float:
        """The cost of the next smaller number that was measured, the smallest one's where there is none."""
        return self.values[max(0, bisect_left(self.numbers, n) - 1)]

    def gap(self, n: int) -> float:
        """How many times as much the next larger measured number costs as the next smaller one; inf beyond the last."""
        i = bisect_left(self.numbers, n)
        return self.values[i] / self.values[max(0, i - 1)] if i < len(self.numbers) else inf

    def times(self, n: int) -> int:
        """How many measurements of ``n`` are kept."""
        return len(self.measured.get(n, ()))

    def at(self, n: int) -> float:
        """The cost of n. Raises IndexError where nothing was measured."""
        numbers, values = self.numbers, self.values
        i = bisect_left(numbers, n)
        if i < len(numbers) and numbers[i] == n:
            return values[i]
        if i == 0:
            return values[0]
        if i == len(numbers):
            return values[-1] + self._beyond() * (n - numbers[-1])
        low, high = numbers[i - 1], numbers[i]
        return values[i - 1] + (values[i] - values[i - 1]) * (n - low) / (high - low)

    def error(self, n: int) -> float:
        """By which share the cost of ``n`` may be too low: its standard error; 0 where that is not known."""
        return self.errors.get(n, 0.0)

    def copy(self) -> Curve:
        """The same costs, to be measured anew."""
        other = Curve(self.slope, {n: list(recent) for n, recent in self.measured.items()}, dict(self.expected))
        other.typical, other.errors = dict(self.typical), dict(self.errors)
        other.numbers, other.values = list(self.numbers), list(self.values)
        return other

    def _beyond(self) -> float:
        first, last = self.numbers[0], self.numbers[-1]
        return (self.values[-1] - self.values[0]) / (last - first) if last > first else self.slope

    def _fit(self, n: int) -> None:
        """The value of n anew; the others' stay unless the order of values changes."""
        recent = self.measured[n]
        value = median(recent if len(recent) >= SURE else [self.expected[n], *recent])
        self.errors[n] = MEDIAN_ERROR * sum(abs(one - value) for one in recent) / (len(recent) ** 1.5 * value)
        old = self.typical.get(n)
        if old is not None and abs(value - old) <= CLOSE * old and len(recent) > 2 * SURE:
            return
        self.typical[n] = value
        self.numbers = sorted(self.typical)
        self.values = [self.typical[number] for number in self.numbers]
        if self.values != sorted(self.values):
            self.values = rising(self.values, [1.0 if self.knows(number) else UNSURE for number in self.numbers])


def rising(values: list[float], weights: list[float]) -> list[float]:
    """The nearest values that never fall: neighbours in the wrong order get their mean."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (high, much, many), (low, little, few) = pools[-2], pools[-1]
            pools[-2:] = [((high * much + low * little) / (much + little), much + little, many + few)]
    return [value for value, _, count in pools for _ in range(count)]
