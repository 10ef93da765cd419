"""Bounds beside measured speedups, on a clock that only the target and the drafter advance; nothing waits."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from spec_commands.prompts import Prompt
from spec_compare.figures.bounds import drafting_curve, weighted_median
from spec_compare.figures.summary import rows
from spec_compare.measuring import calibration, measure
from spec_compare.measuring.calibration import Calibration
from spec_compare.measuring.measure import Baseline, Contender, RequestSettings
from spec_costs import steps

from spec_core import Run, Sampling, hookimpl
from spec_core.loop import guard, run
from spec_core.testing import Oracle, QuickTarget
from tests.compare.test_summary import lap
from tests.support.pairs import every_pair

PROMPTS = [Prompt(f"p{i}", "f", [1 + i, 2, 3, 4]) for i in range(4)]
TERMS = RequestSettings(max_tokens=61, sampling=Sampling())
LONGEST = 8


@attrs.define
class Simulated:
    """Seconds that passed."""

    time: float = 0.0

    def __call__(self) -> float:
        return self.time


class TimedTarget(QuickTarget):
    """A forward of n rows takes ``seconds[n]``."""

    def __init__(self, clock: Simulated, seconds: Any) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def forward(self, batch, needs):
        self.clock.time += self.seconds(batch.tokens.numel())
        return super().forward(batch, needs)


class TimedOracle(Oracle):
    """A draft takes ``each`` seconds per token."""

    def __init__(self, clock: Simulated, each: float, **options: Any) -> None:
        super().__init__(**options)
        self.clock, self.each = clock, each

    @hookimpl
    def draft(self, step) -> None:
        super().draft(step)
        self.clock.time += self.each * max((p.draft.depth for p in step.parts if p.draft), default=0)


COSTS = {
    "flat": lambda n: 1.0,
    "linear": lambda n: 0.7 + 0.3 * n,
    "tiles": lambda n: 0.5 + 0.5 * -(-n // 4),
    "dear": lambda n: float(n),
}
RIGHT = {
    "all": lambda i, seq: True,
    "none": lambda i, seq: False,
    "first two": lambda i, seq: i < 2,
    "mixed": lambda i, seq: (seq.output_position + i) % 5 != 0,
    "by text": lambda i, seq: seq.name in ("p0", "p2") or i < 1,
}


@pytest.fixture
def clock(monkeypatch):
    """The only clock of the loop, of the measurement and of the costs."""
    clock = Simulated()
    for module in (run, guard, steps, calibration):
        monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(measure, "clock_now", lambda: measure.Clock(clock.time, clock.time))
    return clock


def measure_drafter(clock: Simulated, cost: str, right: str, length: int, each: float = 0.0, slower: float = 1.0):
    """The row of a drafter over all prompts. slower: factor of all times after the costs were measured."""
    target = TimedTarget(clock, COSTS[cost])
    with Run(target, reuse=False) as plain:
        texts = {p.id: p.given + plain.generate(p.given, max_tokens=61).result.tokens for p in PROMPTS}
    setup = Baseline("plain", target, TERMS, PROMPTS)
    drafter = lambda: TimedOracle(clock, each, text=texts, right=RIGHT[right], length=length, vocab=48)
    contenders = [
        Contender("plain", lambda: Run(target, reuse=False), setup),
        Contender("drafter", lambda: Run(target, [("drafter", drafter())], draft_max=LONGEST, reuse=False), setup),
    ]
    costs = calibration.planned_calibration({"plain": setup}, {"plain": LONGEST + 1})
    costs.begin()
    target.seconds, each = lambda n: slower * COSTS[cost](n), slower * each
    laps = list(measure.measure_laps(contenders, 1))
    curves = costs.costs()["plain"].curves(1)
    return next(
        r for r in rows(laps, {}, dict.fromkeys(("plain", "drafter"), (curves, LONGEST))) if r.contender == "drafter"
    )


@every_pair(cost=COSTS, right=RIGHT, length=[1, 3, 8])
def test_no_speedup_exceeds_its_bound(clock, cost, right, length):
    row = measure_drafter(clock, cost, right, length, {1: 0.0, 3: 0.05, 8: 0.02}[length])

    assert row.speedup <= row.acceptance_bound + 1e-9
    assert row.roof_fraction == pytest.approx(row.speedup / row.acceptance_bound)
    assert row.acceptance_bound <= row.drafter_bound + 1e-9 <= row.hardware_bound + 2e-9


@pytest.mark.parametrize("cost", ["flat", "linear", "tiles"])
def test_a_drafter_without_cost_and_error_reaches_the_bound_of_the_machine(clock, cost):
    """The last step of a text is cut at its limit: 60 tokens are not a multiple of every step."""
    row = measure_drafter(clock, cost, "all", LONGEST)
    best = max((k + 1) / COSTS[cost](k + 1) for k in range(LONGEST + 1)) * COSTS[cost](1)

    assert row.hardware_bound == pytest.approx(best)
    if cost != "tiles":
        assert row.hardware_drafts == LONGEST
        assert row.speedup == pytest.approx(60 / (6 * COSTS[cost](9) + COSTS[cost](6)) * COSTS[cost](1), rel=0.02)


def test_time_beside_the_forward_lowers_the_share_of_the_bound(clock, monkeypatch):
    """A loop that wastes half a plain step with every draft: the costs of steps do not contain it."""
    target_forward = TimedTarget.forward
    quick = measure_drafter(clock, "flat", "first two", 4)

    def slow(self, batch, needs):
        self.clock.time += 0.5 if batch.tokens.numel() == 5 and batch.parts[0].seq.name.startswith("p") else 0.0
        return target_forward(self, batch, needs)

    monkeypatch.setattr(TimedTarget, "forward", slow)
    wasteful = measure_drafter(clock, "flat", "first two", 4)

    assert quick.roof_fraction == pytest.approx(1, abs=0.03)
    assert wasteful.roof_fraction == pytest.approx(1 / 1.5, abs=0.03)
    assert wasteful.acceptance_bound == pytest.approx(quick.acceptance_bound)


def test_a_machine_that_slowed_down_changes_no_bound(clock):
    """Twice the time for everything after the costs of steps were measured."""
    quick, slow = (measure_drafter(clock, "linear", "mixed", 4, 0.1, slower=factor) for factor in (1.0, 2.0))

    assert slow.rate == pytest.approx(quick.rate / 2)
    assert slow.acceptance_bound == pytest.approx(quick.acceptance_bound)
    assert slow.roof_fraction == pytest.approx(quick.roof_fraction)


def test_one_disturbed_lap_does_not_change_the_cost_of_drafts():
    """Drafting was interrupted in one of three laps of ten steps; a short lap weighs less."""
    plain_lap = lap("x", "a", 1, [1])
    laps = [attrs.evolve(plain_lap, drafting={"4": [10, s]}) for s in (1.0, 100.0, 1.2)]
    laps.append(attrs.evolve(plain_lap, drafting={"4": [1, 0.01], "2": [5, 1.0]}))

    assert drafting_curve(laps, 1.0).seconds == pytest.approx({0: 0.0, 2: 0.2, 4: 0.12})
    assert drafting_curve(laps, 0.5)(4) == pytest.approx(0.06)
    assert weighted_median([(1.0, 1), (2.0, 1), (9.0, 3)]) == 9.0
    assert weighted_median([(1.0, 2), (2.0, 1), (9.0, 1)]) == 1.0


def test_plain_decoding_has_the_bound_of_the_machine_alone(clock):
    target = TimedTarget(clock, COSTS["linear"])
    setup = Baseline("plain", target, TERMS, PROMPTS)
    costs = calibration.planned_calibration({"plain": setup}, {"plain": 5})
    costs.begin()
    laps = list(measure.measure_laps([Contender("plain", lambda: Run(target, reuse=False), setup)], 1))
    row = rows(laps, {}, {"plain": (costs.costs()["plain"].curves(1), 4)})[0]

    assert row.hardware_bound == pytest.approx(5 / COSTS["linear"](5))
    assert (row.drafter_bound, row.acceptance_bound, row.roof_fraction) == (None, None, None)


def test_turns_between_laps_take_a_share_of_their_time(clock):
    """Laps of 18 seconds allow a turn of 18 seconds after every tenth lap on average, and one long lap allows two."""
    target = TimedTarget(clock, COSTS["flat"])
    costs = calibration.planned_calibration({"plain": Baseline("plain", target, TERMS, PROMPTS)}, {"plain": 3})
    costs.begin()
    (rounds, _) = costs.measured["plain"]
    count = lambda: len(rounds.timings[1]) - calibration.FIRST

    for _ in range(40):
        costs.after(6.0)
    spread = count()
    costs.after(10_000.0)

    assert 2 <= spread <= 4, "24 seconds for rounds of six steps, and some for texts that are started again"
    assert count() - spread == calibration.ROUNDS_MAX
    Calibration().after(10_000.0)


def test_where_the_time_of_a_step_goes_is_said_below_nine_tenths_of_a_bound():
    """A rate of 500/s at two tokens per step is 4 ms a step; three quarters of it are the forward."""
    from types import SimpleNamespace

    from spec_compare.figures.table import rest_of_step

    plain = SimpleNamespace(
        contender="plain", roof_fraction=None, rate=1000.0, tokens_per_step=1.0, split={"verify": 0.999, "host": 0.001}
    )
    drafting = SimpleNamespace(
        contender="m", roof_fraction=0.89, rate=500.0, tokens_per_step=2.0, split={"host": 0.25, "verify": 0.75}
    )
    rows, baselines = [plain, drafting], {"m": "plain", "plain": "plain"}

    assert rest_of_step(drafting, rows, baselines) == (
        "m: a step takes 4.000 ms (verify 3.000, host 1.000); a plain step 1.000 ms (verify 0.999)"
    )
    drafting.roof_fraction = 0.9
    assert rest_of_step(drafting, rows, baselines) == "" == rest_of_step(plain, rows, baselines)
