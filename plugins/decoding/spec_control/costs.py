"""What steps cost on this machine: a plain one, one with more rows, and what a method takes beside them.

A plain step is one of the same sequences without a draft, in a run without methods. It is the unit of other costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from functools import partial
from itertools import accumulate
from statistics import median

import attrs

from spec_control import CHANGED, CLIP, RECENT, ROW, SLOW
from spec_core import StepRecord

recent: partial[deque[float]] = partial(deque, maxlen=RECENT)


@attrs.define
class Mean:
    """An exponential mean, arithmetic at first. weight: of one more value once there were many."""

    weight: float = SLOW
    value: float = 0.0
    count: int = 0

    def add(self, value: float, times: int = 1) -> None:
        """Add the mean of ``times`` values."""
        self.count += times
        self.value += min(1.0, times * max(self.weight, 1.0 / self.count)) * (value - self.value)


@attrs.define
class Line:
    """A cost that grows with a number, by least squares; later values count more. It is 0 for 0."""

    sums: list[float] = attrs.field(factory=lambda: [0.5, 0.0, 0.0, 0.0, 0.0])

    def add(self, x: float, y: float) -> None:
        y = min(y, CLIP * self.at(x) + SLOW) if self.sums[0] > 4.0 else y
        self.sums = [(1.0 - SLOW) * old + new for old, new in zip(self.sums, (1.0, x, y, x * x, x * y), strict=True)]

    def at(self, x: float) -> float:
        n, xs, ys, xx, xy = self.sums
        spread = n * xx - xs * xs
        slope = max(0.0, (n * xy - xs * ys) / spread) if spread > 1e-9 else 0.0
        return max(0.0, (ys - slope * xs) / n + slope * x)


@attrs.define(eq=False)
class Costs:
    """Costs of one number of sequences.

    forwards, besides: seconds of recent plain forwards, and of their steps beside them. forward, plain: seconds of a
    plain forward and of its whole step, their medians.
    ratios: {rows of a forward: its time by a plain forward's}; a count of 0 is a guess.
    waiting: {rows: seconds of forwards since the last plain step}, which the next plain step is compared with.
    odd: {rows: a ratio that is unlike the known one}.
    surprised: the last plain step did not agree with the one before. doubtful: a plain step must be measured next.
    """

    sequences: int
    forwards: deque[float] = attrs.field(factory=recent)
    besides: deque[float] = attrs.field(factory=recent)
    ratios: dict[int, Mean] = attrs.field(factory=dict)
    waiting: dict[int, list[float]] = attrs.field(factory=dict)
    odd: dict[int, float] = attrs.field(factory=dict)
    surprised: bool = False
    doubtful: bool = False
    forward: float = 0.0
    plain: float = 0.0
    _curve: tuple[list[int], list[float]] | None = None

    def add_plain(self, forward: float, beside: float) -> None:
        """Learn from a plain step. Forwards before it count if it is as fast as the plain ones before them."""
        self.surprised = bool(self.forward) and not alike(forward, self.forward)
        if self.surprised and not alike(self.forwards[-1], self.forward):  # the second one in a row
            self.forwards, self.besides = recent([self.forwards[-1]]), recent([self.besides[-1]])
        self.forwards.append(forward)
        self.besides.append(max(0.0, beside))
        self.forward = median(self.forwards)
        self.plain = self.forward + median(self.besides)
        if not self.surprised:
            for rows, seconds in self.waiting.items():
                self.learn(rows, median(seconds) / self.forward)
        self.waiting.clear()
        self.doubtful = False

    def learn(self, rows: int, ratio: float) -> None:
        """A ratio that is unlike the known one counts if the next one is like it: the speed may have changed."""
        ratio, mean = self._bound(rows, ratio), self.ratios.setdefault(rows, Mean(4 * SLOW))
        if mean.count and not alike(ratio, mean.value):
            if not alike(ratio, self.odd.pop(rows, 0.0)):
                self.odd[rows] = ratio
                return
            mean.count = 0
        mean.add(ratio)
        self._curve = None

    def guess(self) -> None:
        """Costs of rows that were not yet compared with a plain step after them, from the one before.

        Where they are not as expected, the machine may have changed its speed since: only a plain step can tell.
        """
        for rows, seconds in self.waiting.items():
            if rows not in self.ratios and self.forward:
                ratio = self._bound(rows, median(seconds) / self.forward)
                self.doubtful = self.doubtful or not alike(ratio, self.at(rows))
                if not self.doubtful:
                    self.ratios[rows], self._curve = Mean(value=ratio), None

    def borrow(self, other: Costs) -> None:
        """Take over costs of rows of another number of sequences, until this one has its own."""
        for rows in other.ratios:
            if rows > self.sequences and rows not in self.ratios:
                ratio = other.forward * other.at(rows) / self.forward
                self.ratios[rows] = Mean(value=self._bound(rows, ratio))
        self._curve = None

    def _bound(self, rows: int, ratio: float) -> float:
        """Rows at once never cost less than a plain forward, nor more than one after the other."""
        return max(1.0, min(ratio, rows / self.sequences))

    @property
    def rows_max(self) -> int:
        """Rows of a forward that may be tried: twice the number that was measured."""
        return 2 * max(self.ratios, default=self.sequences)

    def at(self, rows: int) -> float:
        """Time of a forward, by that of a plain one: linear between measured numbers of rows, and beyond them."""
        if self._curve is None:
            known = sorted((n, mean.value) for n, mean in self.ratios.items())
            rising = accumulate((value for _, value in known), max, initial=1.0)
            self._curve = [self.sequences, *(n for n, _ in known)], list(rising)
        numbers, values = self._curve
        i = bisect_left(numbers, rows)
        if i < len(numbers) and numbers[i] == rows:
            return values[i]
        if i == 0:
            return values[0]
        if i == len(numbers):
            slope = (values[-1] - 1.0) / (numbers[-1] - numbers[0]) if i > 1 else ROW / self.sequences
            return values[-1] + slope * (rows - numbers[-1])
        share = (rows - numbers[i - 1]) / (numbers[i] - numbers[i - 1])
        return values[i - 1] + share * (values[i] - values[i - 1])

    def step(self, rows: int) -> float:
        """Time of a step with ``rows`` rows, in plain steps, without what methods take."""
        return 1.0 + (self.at(rows) - 1.0) * self.forward / self.plain

    def plain_seconds(self, record: StepRecord) -> float:
        """Seconds that a plain step would have taken then: a forward says how fast the machine was."""
        seconds = record.seconds["verify"] / self.at(record.rows) * self.plain / self.forward
        return seconds if record.rows in self.ratios else min(seconds, self.plain)


def alike(one: float, other: float) -> bool:
    """Whether two times are of a machine at one speed."""
    return other / CHANGED < one < other * CHANGED
