"""The garbage collector does not search the objects that a command keeps until it ends, only later ones."""

from __future__ import annotations

import gc
import weakref

import pytest
from spec_cli.main import run_command
from spec_commands.heap import frozen_heap

from spec_core import Run


class Loop:
    """It refers to itself: only the collector finds it."""

    def __init__(self):
        self.mine = self


def test_only_objects_that_existed_before_are_left_out():
    old = weakref.ref(Loop())
    with frozen_heap():
        new = weakref.ref(Loop())
        gc.collect()
        assert old() is not None and new() is None

    gc.collect()
    assert old() is None and gc.get_freeze_count() == 0


@pytest.mark.release
def test_texts_are_generated_and_compared_so(monkeypatch):
    counts, step = [], Run.step
    monkeypatch.setattr(Run, "step", lambda run: (counts.append(gc.get_freeze_count()), step(run))[1])

    assert run_command(["generate", "-m", "zoo:pico", "-p", "def add(", "-n", "4"]) == 0
    assert min(counts) > 10_000
    del counts[:]
    assert run_command(["compare", "-m", "zoo:pico", "--method", "ngram", "-n", "4", "--limit", "1"]) == 0
    assert counts[-1] > 10_000
    assert gc.get_freeze_count() == 0
