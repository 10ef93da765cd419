"""How torch's threads wait, and their number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from spec_kernels.machine import WAITING
from spec_targets.runtime import thread_choice

from spec_core import load
from tests.support.small_models import tiny_gguf

FRESH = {k: v for k, v in os.environ.items() if k not in (*WAITING, "KMP_BLOCKTIME", "OMP_NUM_THREADS")}
SAY = "from spec_kernels.machine import thread_waiting; print(thread_waiting())"


def output_of(program: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], env=FRESH | environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.fixture
def restore_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(thread_choice, "_chosen", {})
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_threads_wait_passively_before_torch_is_imported():
    assert "OMP_WAIT_POLICY=passive, GOMP_SPINCOUNT=0" in output_of(f"from spec_core import load; {SAY}")


@pytest.mark.slow
def test_how_threads_wait_is_left_to_who_has_said_so():
    assert output_of(f"from spec_core import load; {SAY}", OMP_WAIT_POLICY="active") == "OMP_WAIT_POLICY=active\n"


def test_that_torch_came_first_is_said():
    assert output_of(f"import torch; from spec_core import load; {SAY}").startswith("torch was imported before")


def test_the_fewest_threads_that_are_as_good_as_the_best_are_taken():
    assert thread_choice.fewest_threads({1: 1.01, 2: 1.0, 4: 1.5}) == 1
    assert thread_choice.fewest_threads({1: 2.0, 2: 1.0, 4: 0.99}) == 2
    assert thread_choice.counts(6) == [1, 2, 4, 6]


def test_a_number_that_was_asked_for_is_not_measured(restore_threads, monkeypatch):
    monkeypatch.setattr(thread_choice, "measure_threads", None)

    assert load(tiny_gguf(), threads=2).info.threads == "2, as asked"
    assert torch.get_num_threads() == 2


def test_a_second_model_finds_the_number_fixed(restore_threads, monkeypatch):
    """Another number would change the bits of the first one."""
    torch.set_num_threads(2)
    first = load(tiny_gguf()).info.threads
    monkeypatch.setattr(thread_choice, "measure_threads", None)

    assert load(tiny_gguf(1)).info.threads == first
    assert "of 2, measured when the first model was loaded" in first


FORK = """
import os, signal
from spec_core import Run, load
target = load("zoo:pico", threads=2)
text = lambda method: Run(target, [method]).generate("def add", max_tokens=12).result.tokens
wanted = {method: text(method) for method in ("eagle3", "dflash", "draft-model")}
for method in wanted:
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if text(method) == wanted[method] else 1)
    print(method, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_children_of_a_fork_draft_with_heads_and_models():
    """Torch operations of a method would wait for ever for threads that a fork does not copy."""
    assert output_of(FORK) == "eagle3 0\ndflash 0\ndraft-model 0\n"


AGAIN = """
import os, signal
from spec_core import Run, UsageError, load
load("zoo:pico", threads={before})
for after in {afters}:
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            text = Run(load("zoo:pico", threads=after)).generate("def add", max_tokens=4).result.text
        except UsageError as error:
            os._exit(7 if "is a fork of one in which torch used several threads" in error.reason else 1)
        os._exit(0)
    print(after, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("before", "ends"), [(2, {2: 7, 1: 0, 0: 0}), (1, {2: 0})])
def test_several_threads_in_a_fork_of_a_process_with_several_are_refused(before, ends):
    """Torch would wait for ever for threads that a fork does not copy."""
    printed = "".join(f"{after} {end}\n" for after, end in ends.items())

    assert output_of(AGAIN.format(before=before, afters=list(ends))) == printed
