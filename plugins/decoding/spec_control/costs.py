"""Costs of steps on this machine: a plain one, one with more rows, and what a method takes besides.

A plain step is one of the same sequences without a draft, in a run without methods. It is the unit of other costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from functools import partial
from itertools import accumulate
from statistics import median_low

import attrs

from spec_control import CHANGED, CLIP, FEW, GROWTH, RECENT, ROW, SLOW, SPIKE
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
class Usual:
    """Cuts off what is unlike recent values: a collection of garbage, a page fault, another program."""

    values: deque[float] = attrs.field(factory=recent)

    def cut(self, value: float) -> float:
        """The value, or the most that is usual; it is remembered as it is."""
        self.values.append(value)
        return min(value, CLIP * median_low(self.values) + SPIKE)


@attrs.define
class Line:
    """A cost that grows with a number, by least squares; later values count more. It is 0 for 0."""

    sums: list[float] = attrs.field(factory=lambda: [0.5, 0.0, 0.0, 0.0, 0.0])

    def add(self, x: float, y: float) -> None:
        n, xs, ys, xx, xy = self.sums
        kept = 1.0 - SLOW
        self.sums = [kept * n + 1.0, kept * xs + x, kept * ys + y, kept * xx + x * x, kept * xy + x * y]

    @property
    def is_known(self) -> bool:
        """Whether a value was added."""
        return self.sums[0] > 0.5

    def at(self, x: float) -> float:
        n, xs, ys, xx, xy = self.sums
        spread = n * xx - xs * xs
        slope = max(0.0, (n * xy - xs * ys) / spread) if spread > 1e-9 else 0.0
        return max(0.0, (ys - slope * xs) / n + slope * x)


@attrs.define(eq=False)
class Costs:
    """Costs of one number of sequences."""

    sequences: int
    forwards: deque[float] = attrs.field(factory=recent)
    """Seconds of recent plain forwards."""
    besides: deque[float] = attrs.field(factory=recent)
    """Seconds of the rest of their steps."""
    ratios: dict[int, Mean] = attrs.field(factory=dict)
    """{rows of a forward: its time divided by a plain forward's}."""
    waiting: dict[int, list[float]] = attrs.field(factory=dict)
    """{rows: seconds of forwards since the last plain step}, which the next plain step is compared with."""
    unmeasured: int = 0
    """Steps with drafts since a plain one was measured."""
    interval: int = FEW
    """Number of such steps after which a plain one is due."""
    forward: float = 0.0
    """Median seconds of a plain forward."""
    plain: float = 0.0
    """Median seconds of a whole plain step."""
    _curve: tuple[list[int], list[float]] | None = None

    def add_plain(self, forward: float, rest: float) -> None:
        """Learn from a plain step. Forwards before it count if it is as fast as the plain ones before them."""
        changed = bool(self.forward) and not is_alike(forward, self.forward)
        if changed and not is_alike(self.forwards[-1], self.forward):  # the second one in a row
            self.forwards, self.besides = recent([self.forwards[-1]]), recent([self.besides[-1]])
        self.forwards.append(forward)
        self.besides.append(max(0.0, rest))
        self.forward = median_low(self.forwards)
        self.plain = self.forward + median_low(self.besides)
        for rows, seconds in self.waiting.items():
            if not changed or rows not in self.ratios:
                self.learn(rows, median_low(seconds) / self.forward)
        self.waiting.clear()
        self.unmeasured = 0

    def learn(self, rows: int, ratio: float) -> None:
        """Learn what a forward with this number of rows takes."""
        self.ratios.setdefault(rows, Mean(4 * SLOW)).add(self._bound(rows, ratio))
        self._curve = None

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
    def rows_known(self) -> int:
        """Largest number of rows that was measured."""
        return max(self.ratios, default=self.sequences)

    @property
    def rows_max(self) -> int:
        """Rows of a forward that may be tried: some times the largest number so far."""
        return GROWTH * max(self.rows_known, *self.waiting, self.sequences)

    def at(self, rows: int) -> float:
        """Time of a forward, divided by a plain one's: linear between measured numbers of rows, and beyond them."""
        if self._curve is None:
            known = sorted((n, mean.value) for n, mean in self.ratios.items() if n > self.sequences)
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
        """Seconds that a plain step would have taken then: a forward says how fast the machine was.

        One with more rows than were measured may cost more than expected: it does not show a slower machine.
        """
        seconds = record.seconds["verify"] / self.at(record.rows) * self.plain / self.forward
        return seconds if record.rows <= self.rows_known else min(seconds, self.plain)


def is_alike(one: float, other: float) -> bool:
    """Whether two times are of a machine at one speed."""
    return other / CHANGED < one < other * CHANGED
