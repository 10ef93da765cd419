"""Warnings about doubtful times, on constructed laps and rows; nothing is timed."""

from __future__ import annotations

import attrs
import pytest
from spec_commands.machine import Load
from spec_commands.timing_warnings import BUSY, CROWDED, DISTURBED, SCATTER, TimingWarning
from spec_compare.figures.summary import rows
from spec_compare.figures.table import show_rows
from spec_compare.figures.timing_warnings import (
    NO_INTERVAL,
    beyond_costs,
    fold_warnings,
    found_in,
    scatter_warnings,
    slowdowns,
    warn_about_bounds,
)
from spec_compare.measuring.measure import Lap, Record, Steps

from spec_core.toolkit.tally import DraftStatistics

TEXT = list(range(15))
QUIET = Load(10.0, 10.0, 2, 0.0, 0.0, 1.0)
COUNTS = DraftStatistics(steps=10, emitted=14)
"""1.40 tokens per step."""


def lap(seconds: float, cpu: float | None = None, prompt: str = "a", name: str = "fast", repeat: int = 0) -> Lap:
    """A lap without prefill. cpu: processor time; None: the same as ``seconds``."""
    cpu = seconds if cpu is None else cpu
    draft_statistics = DraftStatistics(steps=14, emitted=14) if name == "plain" else COUNTS
    record = Record(
        name, prompt, "f", repeat, 0, 5, TEXT, "length", 0, seconds, seconds, cpu, Steps(), draft_statistics
    )
    return Lap(name, "f", repeat, seconds, cpu, {}, {}, {}, [record])


def many(speedups: dict[str, float]) -> list[Lap]:
    """The contender takes one second, plain decoding ``speedup`` seconds."""
    return [one for p, s in speedups.items() for one in (lap(s, prompt=p, name="plain"), lap(1, prompt=p))]


def kinds_and_names(laps: list[Lap], load: Load = QUIET, device: str = "cpu") -> list[tuple[str, str | None]]:
    return [(c.kind, c.about) for c in found_in(laps, rows(laps, {}), load, device)]


def test_quiet_laps_are_not_doubted():
    laps = [lap(1 + 0.02 * i, 1, repeat=i) for i in range(3)] + [lap(1.4, name="plain", repeat=i) for i in range(3)]

    assert kinds_and_names(laps) == []


def test_laps_that_scatter_over_repeats_are_doubted():
    """Also if processor time grew as much as wall time, as with shared memory bandwidth."""
    slow = [lap(seconds, repeat=i) for i, seconds in enumerate((1.0, 2.1, 1.0))]

    assert kinds_and_names([lap(1.4, name="plain"), *slow]) == [("scatter", "fast")]
    assert "fast: 1 of 3 laps took up to 2.1 times as long" in scatter_warnings(slow, "cpu")[0].text


def test_a_lap_that_waited_for_a_processor_is_doubted_without_repeats():
    laps = [lap(1.4, name="plain"), lap(2.0, 1.0)]

    assert kinds_and_names(laps) == [("scatter", "fast")]
    assert kinds_and_names(laps, device="cuda") == [], "the process waits for the device, and uses no processor"


@pytest.mark.parametrize(("allowed", "doubted"), [(1.2, False), (1.29, False), (1.1, True)])
def test_a_speedup_above_its_acceptance_bound_is_doubted(allowed, doubted):
    """Speedups of 1.2 and 1.3 at 1.4 tokens per step, which alone allows them."""
    table_rows = [
        attrs.evolve(r, acceptance_bound=allowed, roof_fraction=1.25 / allowed) if r.contender == "fast" else r
        for r in rows(many({"a": 1.2, "b": 1.3}), {})
        if r.family == "all"
    ]

    warnings = [w for name in ("plain", "fast") for w in beyond_costs([r for r in table_rows if r.contender == name])]
    assert [w.about for w in warnings] == (["fast"] if doubted else [])
    assert all("speedup 1.25 exceeds 1.10, its acceptance bound (all)" in w.text for w in warnings)


def test_different_prompts_may_take_different_times():
    assert slowdowns([lap(1, prompt="a"), lap(9, prompt="b")], "cpu") == [1, 1]


@pytest.mark.parametrize(("slow", "doubted"), [(1, False), (2, True)])
def test_one_disturbed_lap_of_many_is_left_to_the_median(slow, doubted):
    """A tenth of disturbed laps gives no warning, more do."""
    ten = [lap(2.0 if i < slow else 1.0, repeat=i) for i in range(10)]

    assert DISTURBED == 0.1 and bool(scatter_warnings(ten, "cpu")) == doubted


def test_a_lap_within_the_limit_is_not_disturbed():
    assert scatter_warnings([lap(1.0), lap(SCATTER * 0.99, repeat=1)], "cpu") == []
    assert scatter_warnings([lap(1.0), lap(SCATTER * 1.01, repeat=1)], "cpu") != []


def test_a_lap_without_a_measured_time_is_not_doubted():
    """A clock that did not move."""
    assert slowdowns([lap(0.0, 0.0)], "cpu") == [1.0]


def test_speedups_beyond_tokens_per_step_are_doubted():
    """6.74 and 5.30 at 1.40 tokens per step: plain decoding was disturbed."""
    laps = many({"a": 6.74, "b": 5.30})

    assert kinds_and_names(laps) == [("bound", "fast")]
    assert (
        "6.02 at 1.40 tokens per step"
        in warn_about_bounds([r for r in rows(laps, {}) if r.contender == "fast"])[0].text
    )


def test_a_speedup_whose_interval_reaches_its_bound_is_not_doubted():
    assert kinds_and_names(many({"a": 1.3, "b": 2.0, "c": 1.2, "d": 1.4, "e": 1.3})) == []


@pytest.mark.parametrize(("speedup", "doubted"), [(1.4, False), (1.4 * NO_INTERVAL * 1.01, True)])
def test_one_prompt_has_no_interval_and_some_room(speedup, doubted):
    assert kinds_and_names(many({"a": speedup})) == ([("bound", "fast")] if doubted else [])


def test_prompts_that_run_together_have_no_such_bound():
    """A sequence that ends early makes the steps of the others cheaper."""
    laps = many({"a": 6.74, "b": 5.30})
    beside = [attrs.evolve(one, records=[*one.records, *one.records]) for one in laps]

    assert kinds_and_names(beside) == []


def test_a_contender_without_a_speed_has_no_bound():
    assert warn_about_bounds([attrs.evolve(r, speedup=None) for r in rows(many({"a": 6.74}), {})]) == []


@pytest.mark.parametrize(
    ("load", "doubted"),
    [
        (attrs.evolve(QUIET, others=2 * BUSY * 1.1), True),
        (attrs.evolve(QUIET, others=2 * BUSY * 0.9, average_before=9.0), False),
        (attrs.evolve(QUIET, others=None, average_before=2 * CROWDED * 1.1), True),
        (attrs.evolve(QUIET, others=None, average_before=2 * CROWDED * 0.9), False),
        (attrs.evolve(QUIET, others=None, average_before=None), False),
    ],
    ids=["busy", "quiet", "only an average, crowded", "only an average, quiet", "nothing known"],
)
def test_a_busy_machine_is_doubted(load, doubted):
    assert kinds_and_names(many({"a": 1.2}), load) == ([("load", None)] if doubted else [])


def test_warnings_stand_below_the_table(capsys):
    laps = many({"a": 6.74, "b": 5.30})
    table_rows = rows(laps, {})
    show_rows(table_rows, [], found_in(laps, table_rows, QUIET, "cpu"))

    assert capsys.readouterr().out.splitlines()[-1].startswith("warning: fast: speedup 6.02 at 1.40")


def test_warnings_of_many_contenders_are_one_line_that_has_their_number():
    """Up to three of a kind have a line each."""
    many = [TimingWarning("scatter", f"m{i}", f"m{i}: slow") for i in range(20)]
    few = [TimingWarning("bound", f"m{i}", f"m{i}: impossible") for i in range(3)]
    folded = fold_warnings([*many, *few])

    assert [w.kind for w in folded] == ["scatter", "bound", "bound", "bound"]
    assert folded[0].text.startswith("the laps of 20 contenders scatter, such as m0: slow")
    assert folded[1:] == few


def test_wide_names_every_warning_and_every_bound(capsys):
    bounds = {"hardware_bound": 2.6, "hardware_drafts": 8, "acceptance_bound": 2.15, "roof_fraction": 0.93}
    one = next(r for r in rows([lap(10.0, name="plain"), lap(5.0)], {}) if (r.contender, r.family) == ("fast", "all"))
    table_rows = [attrs.evolve(one, contender=f"m{i}", **bounds) for i in range(9)]
    warnings = [TimingWarning("scatter", f"m{i}", f"m{i}: slow") for i in range(9)]
    shown = {}
    for wide in (False, True):
        show_rows(table_rows, [], warnings, wide=wide)
        shown[wide] = capsys.readouterr().out

    assert shown[True].count("warning:") == 9 and shown[True].count("of what its acceptance allows") == 9
    assert shown[False].count("warning:") == 1
    assert "9 contenders: 0.93 to 0.93 of what their acceptance allows; --wide names each" in shown[False]
