"""Load of the machine during a measurement: processor time of this process, and of all others."""

from __future__ import annotations

import os
import re
from pathlib import Path
from time import perf_counter, process_time

import attrs

STAT = Path("/proc/stat")
COUNTED = (0, 1, 2, 5, 6, 7)
"""Fields of a line of /proc/stat that count as work: user, nice, system, irq, softirq, steal. The others are idle
time, or are included in these."""


@attrs.frozen
class Moment:
    """The machine now. wall: seconds. own: processor seconds of this process, all threads.

    processors: their number. busy: processor seconds of the whole machine since it started. average: the load
    average of the last minute. Both are None if the system does not report them.
    """

    wall: float
    own: float
    processors: int
    busy: float | None
    average: float | None


@attrs.frozen
class Load:
    """The machine between two moments.

    seconds, cpu_seconds: wall time, and processor time of this process, all threads. processors: number in the
    machine. others: mean number of processors that other programs kept busy, including time stolen by a hypervisor.
    average_before, average_after: load averages of the last minute. None if the system does not report them.
    """

    seconds: float
    cpu_seconds: float
    processors: int
    others: float | None
    average_before: float | None
    average_after: float | None


def moment(stat: Path = STAT) -> Moment:
    processors, busy = _stat(stat)
    return Moment(perf_counter(), process_time(), processors or os.cpu_count() or 1, busy, _average())


def load_between(before: Moment, after: Moment) -> Load:
    seconds, own = after.wall - before.wall, after.own - before.own
    return Load(seconds, own, after.processors, _others(before, after), before.average, after.average)


def _others(before: Moment, after: Moment) -> float | None:
    """Processor time of other processes; None if the system reports less time than this process used."""
    seconds, own = after.wall - before.wall, after.own - before.own
    if before.busy is None or after.busy is None or seconds <= 0:
        return None
    busy = after.busy - before.busy
    return None if busy < own / 2 else max(0.0, busy - own) / seconds


def _stat(file: Path) -> tuple[int, float | None]:
    """Number of processors and their seconds of work; 0 and None if the file is missing or not as on Linux."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return 0, None
    total = re.match(r"cpu +((?:\d+ +){7}\d+)", text)
    if total is None:
        return 0, None
    ticks = [int(field) for field in total[1].split()]
    return len(re.findall(r"^cpu\d", text, re.M)), sum(ticks[i] for i in COUNTED) / os.sysconf("SC_CLK_TCK")


def _average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        return None
