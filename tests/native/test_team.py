"""Whether several threads run a forward, by simulated times of forwards."""

from __future__ import annotations

import ctypes

import pytest

from tests.native.compiled import compiler, library
from tests.native.ops_library import structure

Team = structure(
    "Team",
    **dict.fromkeys(("mode", "last", "seen", "delayed", "pause", "left"), ctypes.c_int32),
    **dict.fromkeys(("alone", "together"), ctypes.c_double),
)


@pytest.fixture(scope="module")
def native():
    if compiler() is None:
        pytest.skip("no C compiler")
    library_here = ctypes.CDLL(str(library()))
    library_here.spec_team_record.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_int]
    return library_here


@pytest.fixture
def run(native):
    """run(count, together, waits): the number of threads of each of count forwards; one thread takes 1 second."""
    team = Team()

    def forwards(count, together, waits):
        chosen = []
        for _ in range(count):
            chosen.append(native.spec_team_choose(ctypes.byref(team), 2))
            alone = chosen[-1] == 1
            native.spec_team_record(ctypes.byref(team), chosen[-1], 1.0 if alone else together, 0 if alone else waits)
        return chosen

    return forwards


def test_without_waits_all_threads_run_every_forward(run):
    assert set(run(2000, together=1.5, waits=0)) == {2}


def test_one_thread_runs_where_several_wait_and_are_slower(run):
    chosen = run(4000, together=1.2, waits=1)

    assert chosen.count(2) <= 16 + 8 * (4 + 4000 // 512), "one window, and half of the forwards of each trial"
    assert set(chosen[2000:]) == {1, 2}, "several threads must be tried again"


def test_threads_that_wait_but_are_faster_go_on(run):
    chosen = run(4000, together=0.8, waits=1)

    assert 0 < chosen.count(1) <= 8 * (4 + 4000 // 512), "four trials until the longest pause, then one after each"


def test_several_threads_come_back_when_they_are_faster_again(run):
    run(3000, together=1.2, waits=1)

    chosen = run(512 + 16, together=0.6, waits=0)

    assert chosen[-1] == 2
    assert set(run(1000, together=0.6, waits=0)) == {2}


def test_one_wait_in_sixteen_forwards_starts_no_trial(run):
    chosen = [threads for _ in range(50) for threads in run(15, together=1.2, waits=0) + run(1, together=1.2, waits=1)]

    assert set(chosen) == {2}


def test_forwards_of_other_numbers_of_rows_are_measured_apart(native):
    sizes = [native.spec_team_size(rows) for rows in (1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 4096)]

    assert sizes == [0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 11]
