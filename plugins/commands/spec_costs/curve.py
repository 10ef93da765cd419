"""Costs by a whole number, measured at some numbers and linear between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import attrs

from spec_core.errors import UsageError


def _in_order(values: Mapping[int, float]) -> dict[int, float]:
    return {int(n): float(values[n]) for n in sorted(values, key=int)}


@attrs.frozen
class Curve:
    """seconds: by number of rows, or of drafted tokens. Raises UsageError if there are none."""

    seconds: dict[int, float] = attrs.field(converter=_in_order)

    @seconds.validator
    def _some(self, _: object, value: dict[int, float]) -> None:
        if not value:
            raise UsageError("no cost was measured", hint="measure again with `spec bench step`")

    def __call__(self, n: int) -> float:
        """Seconds of n. Beyond the measured numbers the last slope continues; below them the first cost holds."""
        numbers, values = list(self.seconds), list(self.seconds.values())
        i = bisect_left(numbers, n)
        if i == 0 or len(numbers) == 1:
            return values[0]
        i = min(i, len(numbers) - 1)
        slope = (values[i] - values[i - 1]) / (numbers[i] - numbers[i - 1])
        if n > numbers[-1]:
            return values[-1] + max(0.0, slope) * (n - numbers[-1])
        return values[i - 1] + slope * (n - numbers[i - 1])


@attrs.frozen
class Curves:
    """A cost curve for each number of cached rows. Between two depths costs are linear, outside of them the nearest."""

    by_depth: dict[int, Curve]

    def at(self, depth: float) -> Curve:
        """The curve at this depth."""
        depths = sorted(self.by_depth)
        low = max((d for d in depths if d <= depth), default=depths[0])
        high = min((d for d in depths if d >= depth), default=depths[-1])
        if low == high:
            return self.by_depth[low]
        share = (depth - low) / (high - low)
        near, far = self.by_depth[low], self.by_depth[high]
        numbers = near.seconds.keys() | far.seconds.keys()
        return Curve({n: (1 - share) * near(n) + share * far(n) for n in numbers})
