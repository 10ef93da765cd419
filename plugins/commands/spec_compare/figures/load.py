"""Load of the machine during the laps, from the records of each lap."""

from __future__ import annotations

from spec_commands.machine import Load

from spec_compare.records.record import Lap


def load_of(laps: list[Lap], processors: int, before: float | None) -> Load:
    """The load during all laps together. before: load average before the first lap."""
    seconds, own = sum(lap.seconds for lap in laps), sum(lap.cpu_seconds for lap in laps)
    after = laps[-1].load_average if laps else None
    return Load(seconds, own, processors, _others(laps, seconds, own), before, after)


def _others(laps: list[Lap], seconds: float, own: float) -> float | None:
    """Mean number of processors that other programs kept busy; None if the system reports less than this process used:
    its figure is then of something else."""
    known = [lap.busy_seconds for lap in laps if lap.busy_seconds is not None]
    if len(known) < len(laps) or seconds <= 0 or sum(known) < own / 2:
        return None
    return max(0.0, sum(known) - own) / seconds
