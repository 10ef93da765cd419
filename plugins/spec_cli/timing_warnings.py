"""Reasons to doubt times that were measured, and the limits beyond which something is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from spec_cli.machine import Load

SCATTER = 1.3
"""The same work repeats within a few per cent on a quiet machine. At 1.3 a disturbance is as large as the gain of many
methods."""
DISTURBED = 0.1
"""Share of disturbed measurements that medians and intervals are left to deal with."""
BUSY = 0.1
"""Share of all processors that other programs may use: a quiet machine's own services stay below it, and one busy
program exceeds it on up to nine processors."""
CROWDED = 0.5
"""Load average per processor, where nothing better is known: it counts waiting programs, and one or two are usual."""
QUIET = "measure again on a quiet machine"

Kind = Literal["scatter", "bound", "load"]


@attrs.frozen
class TimingWarning:
    """One reason. about: the contender or the number of rows it concerns, None for all."""

    kind: Kind
    about: str | None
    text: str


def scattered(slowdowns: Sequence[float]) -> int:
    """How many took more than SCATTER times as long as they should have; 0 for a share that does not matter.

    slowdowns: time over the time that the same work needs, of each measurement.
    """
    slow = sum(s > SCATTER for s in slowdowns)
    return slow if slow > DISTURBED * len(slowdowns) else 0


def of_load(load: Load) -> list[TimingWarning]:
    """A warning where other programs used much of the machine."""
    if load.others is not None:
        if load.others <= BUSY * load.processors:
            return []
        said = f"other programs kept {load.others:.1f} of {load.processors} processors busy during the measurement"
    elif load.average_before is not None and load.average_before > CROWDED * load.processors:
        said = f"the load average was {load.average_before:.1f} on {load.processors} processors before the measurement"
    else:
        return []
    return [TimingWarning("load", None, f"{said}: {QUIET}")]
