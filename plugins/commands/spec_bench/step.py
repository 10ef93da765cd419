"""Steps of a given number of rows: the figures of a table, from the timings of every step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import attrs
from spec_costs import steps
from spec_costs.steps import Timing

from spec_core import Sampling, Target

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Rows of one sequence in a forward: a pending token and drafts."""
MEDIANS = ("choosing", "core", "step", "step_cpu")
"""Times whose median over steps is reported, besides the forward."""


@attrs.frozen
class Cost:
    """Times of one step, in seconds."""

    rows: int
    """Rows of each sequence."""
    batch: int
    depth: int
    """Cached rows of each sequence before the first timed step."""
    forward: float
    """Shortest forward."""
    forward_median: float
    """Median of the forwards."""
    choosing: float
    """Median of accepting drafts and drawing tokens."""
    core: float
    """Median of the rest of a step without drafting."""
    step: float
    """Median of a whole step's wall time."""
    step_cpu: float
    """Median of a whole step's processor time in this process, all threads."""
    bytes: int | None
    """Min bytes that the forward reads, weights and cached rows; None if the target does not report them."""

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of the fastest forward."""
        return None if self.bytes is None else self.bytes / self.forward

    @property
    def overhead(self) -> float:
        """Share of a step outside the forward."""
        around = self.choosing + self.core
        return around / (around + self.forward_median)


def measure_steps(
    target: Target, rows: Sequence[int], depth: int, batch: int, repeats: int, sampling: Sampling
) -> list[Cost]:
    """Measure steps of ``batch`` sequences after prompts of ``depth`` tokens. Raises UsageError if they do not fit."""
    measured = steps.measure_steps(target, rows, depth, batch, repeats, sampling)
    read = bytes_read(target, depth, batch)
    return [cost(n, batch, depth, timings, read) for n, timings in measured.items()]


def cost(rows: int, batch: int, depth: int, timings: Sequence[Timing], read: int | None) -> Cost:
    forward = [timing.forward for timing in timings]
    middle = {name: statistics.median(getattr(timing, name) for timing in timings) for name in MEDIANS}
    return Cost(rows, batch, depth, min(forward), statistics.median(forward), **middle, bytes=read)


def bytes_read(target: Target, depth: int, batch: int) -> int | None:
    """Bytes of all weights, including unused experts of a mixture, and of the rows cached before the step."""
    weights, rows = (target.info.weight_bytes, target.info.rows_bytes(depth))
    return None if weights is None or rows is None else int(weights + rows * batch)
