"""``spec bench``: steps have the requested rows, figures come with settings and machine; times are not asserted."""

from __future__ import annotations

import json

import attrs
import pytest
from spec_bench import core, step
from spec_cli.main import run_command
from spec_costs import file, steps
from spec_kernels import native

from spec_core import Sampling, UsageError, hookimpl, load
from spec_core.testing import ToyTarget
from tests.support.toy_plugins import install

needs_native = pytest.mark.skipif(native.problem() is not None, reason="nothing runs natively here")


@pytest.fixture
def bench(capsys, monkeypatch, tmp_path):
    """Run the command; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        return run_command(["bench", *arguments]), *capsys.readouterr()

    return call


def test_a_figure_for_every_number_of_rows_depth_and_batch(bench):
    options = ("--rows", "1,3", "--depth", "5,9", "--batch", "1,2", "--repeats", "2")
    code, out, _ = bench("step", "-m", "zoo:pico", *options, "--json")
    body = json.loads(out)

    assert code == 0 and body["bandwidth"] > 0 and body["kernels"]
    seen = [(s["depth"], s["batch"], s["rows"]) for s in body["steps"]]
    assert seen == [(d, b, n) for d in (5, 9) for b in (1, 2) for n in (1, 3)]


def test_deeper_steps_read_more(bench):
    _, out, _ = bench("step", "-m", "zoo:pico", "--rows", "1", "--depth", "5,9", "--repeats", "1", "--json")
    near, far = (s["bytes"] for s in json.loads(out)["steps"])

    assert far > near


def test_the_table_has_a_line_for_every_number_of_rows(bench):
    code, out, _ = bench("step", "-m", "zoo:pico", "--rows", "1,2", "--depth", "5", "--repeats", "1")

    first = [line.split()[0] for line in out.splitlines() if line]
    assert code == 0 and [word for word in first if word.isdecimal()] == ["1", "2"]


def test_a_target_that_says_nothing_about_its_memory_is_measured_too():
    (cost,) = step.measure_steps(ToyTarget(recurrent=False), [2], 4, 1, 1, Sampling())

    assert cost.forward > 0 and cost.bytes is None and cost.bandwidth is None


def test_what_does_not_fit_into_the_context_is_refused(bench):
    code, _, err = bench("step", "-m", "zoo:pico", "--depth", "1000000")

    assert code == 2 and "positions" in err


def test_steps_with_other_rows_than_asked_for_are_refused(monkeypatch):
    monkeypatch.setattr(steps.Filler, "draft", lambda self, step: None)

    with pytest.raises(UsageError, match="2 rows had 1"):
        step.measure_steps(ToyTarget(recurrent=False), [2], 4, 1, 1, Sampling())


@pytest.mark.parametrize(("rows", "batch", "depth"), [(1, 32, 100), (40, 32, 3)], ids=["many prompts", "many rows"])
def test_sequences_of_a_batch_begin_together(rows, batch, depth):
    """None has ended, or waits, while others are still in their prompt: together they exceed the rows of a forward."""
    target = ToyTarget(recurrent=False, context=512)

    (cost,) = step.measure_steps(target, [rows], depth, batch, 1, Sampling())
    assert cost.forward > 0


@pytest.mark.parametrize("flags", [["--rows", "0"], ["--rows", "x"], ["--depth", ""], ["--batch", "1,,2"]])
def test_numbers_that_are_none_are_refused(bench, flags):
    code, _, err = bench("step", "-m", "zoo:pico", *flags)

    assert code == 2 and "must be numbers above 0" in err


def test_drafts_of_a_method_are_timed_by_their_length_and_kept(bench, tmp_path):
    options = ("--rows", "1,3,9", "--depth", "5", "--repeats", "2", "--method", "ngram", "--out", "costs.json")
    code, out, err = bench("step", "-m", "zoo:pico", "--threads", "1", *options, "--json")
    body = json.loads(out)
    kept = file.read_costs(tmp_path / "costs.json")

    assert code == 0 and "written: costs.json" in err
    assert {d["method"] for d in body["drafting"]} == {"ngram"} and {d["drafts"] for d in body["drafting"]} >= {1, 2}
    assert [(limit["method"], set(limit["break_even"])) for limit in body["limits"]] == [
        (None, {"1", "2", "4", "8"}),
        ("ngram", {"1", "2", "4", "8"}),
    ]
    assert [(c.rows, c.seconds) for c in kept.steps] == [(s["rows"], s["step"]) for s in body["steps"]]
    assert [attrs.asdict(d) for d in kept.drafting] == body["drafting"]
    kept.check(load("zoo:pico", threads=1))


def test_the_bounds_stand_below_the_table(bench):
    _, out, _ = bench("step", "-m", "zoo:pico", "--rows", "1,2,5", "--depth", "5", "--repeats", "1")

    assert "depth 5, batch 1: free drafts: " in out and "break-even acceptance by draft length 1: " in out


def test_a_method_needs_texts(bench, monkeypatch):
    install(monkeypatch)
    code, _, err = bench("step", "-m", "toy:dense", "--method", "repeat", "--rows", "1", "--depth", "4")

    assert code == 2 and "--method needs texts, and toy-0 ships no prompts" in err


def test_the_core_is_timed_alone(bench):
    code, out, _ = bench("core", "--steps", "2", "--repeats", "1", "--json")
    body = json.loads(out)

    assert code == 0
    assert [case["case"] for case in body["cases"]] == list(core.CASES)
    assert all(case["best"] > 0 for case in body["cases"])
    out = bench("core", "--steps", "2", "--repeats", "1")[1]
    assert "median µs" in out and [case for case in core.CASES if case not in out] == []


def test_the_core_of_another_checkout_is_timed_in_turns(bench, monkeypatch, tmp_path):
    """Twice as fast there; each of three turns asks both."""
    there, sides = tmp_path.resolve() / "there", []

    def time_side(side, steps):
        sides.append(side == there)
        return dict.fromkeys(core.CASES, 10.0 if side == there else 20.0)

    monkeypatch.setattr(core, "time_checkout", time_side)
    _, out, _ = bench("core", "--against", "there", "--repeats", "3")

    assert sides == [True, False, False, True, True, False]
    assert "ratio" in out and out.count(" 2.00\n") == len(core.CASES)


def test_a_checkout_without_the_command_is_refused(bench, tmp_path):
    old = tmp_path / "old" / "spec_core"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text("")
    (old / "__main__.py").write_text("import sys; sys.exit('no such command')")
    (tmp_path / "old" / "kernels").mkdir()
    code, _, err = bench("core", "--against", "old", "--repeats", "2", "--steps", "1")

    assert code == 2 and "old: `spec bench core` failed: no such command" in err and "Traceback" not in err


def test_work_that_is_not_that_of_a_step_is_not_timed(monkeypatch):
    monkeypatch.setattr(core.NullDrafter, "draft", hookimpl(lambda self, step: None))

    with pytest.raises(AssertionError, match="a step emitted"):
        core.start_run("draft, batch 1")


@needs_native
def test_products_of_every_kind_of_activations(bench):
    arguments = ("--type", "Q4_1", "--type", "F16", "--size", "cached", "--rows", "1,2", "--repeats", "1", "--json")
    code, out, _ = bench("kernels", *arguments)
    seen = [(p["type"], p["activations"], p["rows"]) for p in json.loads(out)]

    assert code == 0
    assert seen == [(t, a, n) for t, a in (("Q4_1", "int15"), ("Q4_1", "int8"), ("F16", "float32")) for n in (1, 2)]


@needs_native
@pytest.mark.parametrize(("flags", "message"), [(["--type", "Q9"], "Q9"), (["--isa", "mmx"], "no mmx")])
def test_a_type_or_instruction_set_that_is_not_there_is_refused(bench, flags, message):
    code, _, err = bench("kernels", *flags)

    assert code == 2 and message in err
