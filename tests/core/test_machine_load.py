"""The machine's load, from constructed files, and on a system that does not report it."""

from __future__ import annotations

import os

import pytest
from spec_commands.machine import Moment, load_between, moment

STAT = """\
cpu  300 20 100 5000 7 3 2 75 40 30
cpu0 150 10 50 2500 7 3 2 75 40 30
cpu1 150 10 50 2500 0 0 0 0 0 0
intr 1 2 3
cpufreq 5
"""


@pytest.fixture
def stat(tmp_path):
    def write(text: str | bytes):
        file = tmp_path / "stat"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def at(wall: float, own: float, busy: float | None, average: float | None = 0.0) -> Moment:
    return Moment(wall, own, 2, busy, average)


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="ticks of /proc/stat are a Unix matter")
def test_work_is_what_is_neither_idle_nor_counted_twice(stat):
    """User, nice, system, interrupts, and what a hypervisor took; guests are part of user."""
    now = moment(stat(STAT))

    assert (now.processors, now.busy) == (2, (300 + 20 + 100 + 3 + 2 + 75) / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize("text", ["", "cpu x y", "cpu 1 2 3", b"\xff\xfe", None], ids=repr)
def test_a_system_that_does_not_say_has_no_such_figure(stat, tmp_path, text):
    now = moment(tmp_path / "none" if text is None else stat(text))

    assert now.busy is None and now.processors >= 1


def test_a_system_without_a_load_average_has_none(monkeypatch, stat):
    monkeypatch.delattr(os, "getloadavg", raising=False)

    assert moment(stat(STAT)).average is None


def test_others_are_the_work_of_the_machine_without_one_s_own():
    """Ten seconds, 19 processor seconds in all, 9 of this process: others used one of two processors."""
    load = load_between(at(5, 1, 100, 0.5), at(15, 10, 119, 2.0))

    assert (load.seconds, load.cpu_seconds, load.processors, load.others) == (10, 9, 2, 1.0)
    assert (load.average_before, load.average_after) == (0.5, 2.0)


def test_others_are_never_negative():
    """Ticks are coarser than the clock of a process."""
    assert load_between(at(0, 0, 0), at(1, 1, 0.99)).others == 0


def test_counts_that_leave_out_this_process_say_nothing_of_others():
    """As in a sandbox whose /proc/stat has zeros."""
    assert load_between(at(0, 0, 0), at(10, 9, 0)).others is None
    assert load_between(at(0, 0, None), at(10, 9, None)).others is None
    assert load_between(at(0, 0, 0), at(0, 0, 0)).others is None
