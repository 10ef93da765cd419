"""Costs of plain and drafted steps, measured before the laps and between them: the bounds of speedups need them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter

import attrs
from spec_commands import common
from spec_commands.prompt import tokens_of
from spec_costs import file, steps
from spec_costs.file import Costs, StepCost, machine
from spec_costs.limits import limits, sentence
from spec_costs.steps import Rounds

from spec_compare.inputs.conversation import next_prompt
from spec_compare.measuring.contenders import ContenderPlan
from spec_compare.measuring.measure import Baseline
from spec_core import Run, Target

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 65)
"""Rows of a sequence that are measured, up to the rows of the largest draft."""
FIRST = 7
"""Steps of each number of rows before the first lap."""
SHARE = 0.1
"""Time of further steps between laps, as a share of the time of the laps: the machine may change in between."""

ROUNDS_MAX = 2
"""Max rounds after a lap."""


@attrs.define(eq=False)
class Calibration:
    """Costs by baseline. given: from a file; such costs are not measured again. measured: rounds at two depths."""

    given: dict[str, Costs] = attrs.field(factory=dict)
    measured: dict[str, list[Rounds]] = attrs.field(factory=dict)
    _budget: float = 0.0

    def begin(self) -> None:
        """The first rounds."""
        for _ in range(FIRST):
            self._turn()

    def after(self, seconds: float) -> None:
        """Rounds for a share of a lap's time, at most ROUNDS_MAX."""
        self._budget += SHARE * seconds
        for _ in range(ROUNDS_MAX if self.measured else 0):
            if self._budget <= 0:
                break
            began = perf_counter()
            self._turn()
            self._budget -= perf_counter() - began

    def _turn(self) -> None:
        for rounds in (t for measured_rounds in self.measured.values() for t in measured_rounds):
            rounds.round()

    def costs(self) -> dict[str, Costs]:
        """Costs that were measured so far."""
        return self.given | {name: _costs(rounds) for name, rounds in self.measured.items()}

    def close(self) -> None:
        for rounds in (t for measured_rounds in self.measured.values() for t in measured_rounds):
            rounds.close()


def _costs(measured: list[Rounds]) -> Costs:
    """Medians of whole steps."""
    costs = [
        StepCost(rounds.batch, rounds.depth, n, statistics.median(t.step for t in timings))
        for rounds in measured
        for n, timings in rounds.timings.items()
    ]
    return Costs(machine(measured[0].target), costs)


def from_file(path: Path, setups: Mapping[str, Baseline]) -> Calibration:
    """Costs that ``spec bench step --out`` wrote. Raises UsageError if they belong to another model or machine."""
    costs = file.read_costs(path)
    for setup in setups.values():
        costs.check(setup.target)
        costs.curves(setup.request_settings.batch)
    return Calibration(dict.fromkeys(setups, costs))


def planned_calibration(setups: Mapping[str, Baseline], rows: Mapping[str, int]) -> Calibration:
    """Costs that are to be measured. rows: of the largest draft of each baseline.

    A baseline whose context has no room for them is left out, with a note.
    """
    measured = {name: rounds for name, setup in setups.items() if (rounds := _rounds(setup, rows[name]))}
    return Calibration(measured=measured)


def _rounds(baseline: Baseline, rows: int) -> list[Rounds]:
    """Rounds of measurements at the beginning of the shortest text, and at the end of the longest."""
    target, request_settings = baseline.target, baseline.request_settings
    rows = min(rows, (target.info.context - 2) // (steps.WARM + 2))
    if rows < 1:
        common.print_note(f"no bounds: a context of {target.info.context} positions has no room to measure steps")
        return []
    numbers = sorted({n for n in ROWS if n < rows} | {rows})
    return [
        Rounds(target, numbers, depth, request_settings.batch, request_settings.sampling)
        for depth in _depths(baseline, target, rows)
    ]


def _depths(baseline: Baseline, target: Target, rows: int) -> list[int]:
    room = target.info.context - rows * (steps.WARM + 2) - 1
    lengths = [len(tokens_of(next_prompt(p, [], target), target)) for p in baseline.prompts]
    return sorted({min(room, min(lengths)), min(room, max(lengths) + baseline.request_settings.max_tokens)})


def widths(entered: Iterable[ContenderPlan], runs: Mapping[str, Run]) -> dict[str, int]:
    """{baseline: rows of the largest draft that one of its contenders may make, and its pending token}."""
    rows_by_contender: dict[str, int] = {}
    for entrant in entered:
        run, baseline = runs[entrant.contender.name], entrant.contender.baseline
        longest = run.settings.nodes_max if run.needs.trees else run.settings.draft_max
        rows_by_contender[baseline] = max(rows_by_contender.get(baseline, 1), 1 + max(longest, run.settings.draft_max))
    return rows_by_contender


def announce_costs(costs: Mapping[str, Costs], draft_max: int, batch: int) -> None:
    """Note what the costs allow before any text is seen."""
    for name, own_costs in costs.items():
        for depth, curve in own_costs.curves(batch).by_depth.items():
            limits_text = sentence(limits(curve, draft_max, batch, depth))
            common.print_note(f"{name}, {depth} cached rows: {limits_text}")
