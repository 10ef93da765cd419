"""``spec bench``: steps have the requested rows, figures come with settings and machine; times are not asserted."""

from __future__ import annotations

import json

import pytest
from spec_bench import step
from spec_cli.main import run
from spec_kernels import native

from spec_core import Sampling, UsageError
from spec_core.testing import ToyTarget

needs_native = pytest.mark.skipif(native.problem() is not None, reason="nothing runs natively here")


@pytest.fixture
def bench(capsys, monkeypatch, tmp_path):
    """Run the command; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        return run(["bench", *arguments]), *capsys.readouterr()

    return call


def test_a_figure_for_every_number_of_rows_depth_and_batch(bench):
    options = ("--rows", "1,3", "--depth", "5,9", "--batch", "1,2", "--repeats", "2")
    code, out, _ = bench("step", "-m", "zoo:pico", *options, "--json")
    found = json.loads(out)

    assert code == 0 and found["bandwidth"] > 0 and found["kernels"]
    seen = [(s["depth"], s["batch"], s["rows"]) for s in found["steps"]]
    assert seen == [(d, b, n) for d in (5, 9) for b in (1, 2) for n in (1, 3)]


def test_deeper_steps_read_more(bench):
    _, out, _ = bench("step", "-m", "zoo:pico", "--rows", "1", "--depth", "5,9", "--repeats", "1", "--json")
    near, far = (s["bytes"] for s in json.loads(out)["steps"])

    assert far > near


def test_the_table_has_a_line_for_every_number_of_rows(bench):
    code, out, _ = bench("step", "-m", "zoo:pico", "--rows", "1,2", "--depth", "5", "--repeats", "1")

    lines = [line for line in out.splitlines() if not line.startswith("warning: ")]
    assert code == 0 and [line.split()[0] for line in lines[-2:]] == ["1", "2"]


def test_a_target_that_says_nothing_about_its_memory_is_measured_too():
    cost = step.measure(ToyTarget(recurrent=False), 2, 4, 1, 1, Sampling())

    assert cost.forward > 0 and cost.bytes is None and cost.bandwidth is None


def test_what_does_not_fit_into_the_context_is_refused(bench):
    code, _, err = bench("step", "-m", "zoo:pico", "--depth", "1000000")

    assert code == 2 and "positions" in err


def test_steps_with_other_rows_than_asked_for_are_refused(monkeypatch):
    monkeypatch.setattr(step.Filler, "draft", lambda self, step: None)

    with pytest.raises(UsageError, match="2 rows had 1"):
        step.measure(ToyTarget(recurrent=False), 2, 4, 1, 1, Sampling())


@pytest.mark.parametrize(("rows", "batch", "depth"), [(1, 32, 100), (40, 32, 3)], ids=["many prompts", "many rows"])
def test_sequences_of_a_batch_begin_together(rows, batch, depth):
    """None has ended, or waits, while others are still in their prompt: together they exceed the rows of a forward."""
    target = ToyTarget(recurrent=False, context=512)

    assert step.measure(target, rows, depth, batch, 1, Sampling()).forward > 0


@pytest.mark.parametrize("flags", [["--rows", "0"], ["--rows", "x"], ["--depth", ""], ["--batch", "1,,2"]])
def test_numbers_that_are_none_are_refused(bench, flags):
    code, _, err = bench("step", "-m", "zoo:pico", *flags)

    assert code == 2 and "must be numbers above 0" in err


@needs_native
def test_products_of_every_kind_of_activations(bench):
    arguments = ("--type", "Q4_1", "--type", "F16", "--size", "cached", "--rows", "1,2", "--repeats", "1", "--json")
    code, out, _ = bench("kernels", *arguments)
    seen = [(p["type"], p["activations"], p["rows"]) for p in json.loads(out)]

    assert code == 0
    assert seen == [(t, a, n) for t, a in (("Q4_1", "int15"), ("Q4_1", "int8"), ("F16", "float32")) for n in (1, 2)]


@needs_native
@pytest.mark.parametrize(("flags", "said"), [(["--type", "Q9"], "Q9"), (["--isa", "mmx"], "no mmx")])
def test_a_type_or_instruction_set_that_is_not_there_is_refused(bench, flags, said):
    code, _, err = bench("kernels", *flags)

    assert code == 2 and said in err
