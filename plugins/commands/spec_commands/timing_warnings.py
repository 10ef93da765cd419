"""Warnings about doubtful timings, and their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from spec_commands.machine import Load

SCATTER = 1.3
"""Ratio of times of equal work above which a measurement is disturbed. On a quiet machine they differ by a few per
cent; at 1.3 a disturbance is as large as the gain of many methods."""
DISTURBED = 0.1
"""Share of disturbed measurements below which medians and intervals are trusted, without a warning."""
BUSY = 0.1
"""Share of all processors that other programs may use. The services of a quiet machine stay below it; one busy
program exceeds it on up to nine processors."""
CROWDED = 0.5
"""Load average per processor, used if no other figure is available: it also counts one or two waiting programs."""
QUIET = "measure again on a quiet machine"

Kind = Literal["scatter", "bound", "load", "server"]


@attrs.frozen
class TimingWarning:
    """One reason. about: the contender or the number of rows it concerns, None for all."""

    kind: Kind
    about: str | None
    text: str


def slow_count(slowdowns: Sequence[float]) -> int:
    """Number of measurements above SCATTER times the expected time; 0 if their share is at most DISTURBED.

    slowdowns: for each measurement, its time over the time that the same work needs.
    """
    slow = sum(s > SCATTER for s in slowdowns)
    return slow if slow > DISTURBED * len(slowdowns) else 0


def of_load(load: Load) -> list[TimingWarning]:
    """A warning if other programs used much of the machine."""
    if load.others is not None:
        if load.others <= BUSY * load.processors:
            return []
        message = f"other programs kept {load.others:.1f} of {load.processors} processors busy during the measurement"
    elif load.average_before is not None and load.average_before > CROWDED * load.processors:
        message = (
            f"the load average was {load.average_before:.1f} on {load.processors} processors before the measurement"
        )
    else:
        return []
    return [TimingWarning("load", None, f"{message}: {QUIET}")]
