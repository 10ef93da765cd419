"""The figures of a report, each with its data as a table for those who do not see it."""

from __future__ import annotations

from collections.abc import Iterator

from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL
from spec_compare.report.bars import speedups, time_split
from spec_compare.report.context import context_curve
from spec_compare.report.curves import acceptance, lengths
from spec_compare.report.figure import Figure
from spec_compare.report.points import efficiency, step_costs
from spec_compare.report.reliability import reliability


def figures(outcome: Outcome) -> Iterator[Figure]:
    """Figures for which the outcome has data."""
    rows = [row for row in outcome.rows if row.family == ALL]
    drafting = [row for row in rows if row.draft_acceptance is not None]
    timed = [row for row in drafting if row.speedup is not None]
    if timed:
        yield speedups(outcome, timed)
    if timed and outcome.lengths:
        yield context_curve(outcome, timed)
    if by_step := [row for row in drafting if row.acceptance_histogram]:
        yield acceptance(outcome, by_step)
        yield lengths(outcome, by_step)
    if outcome.costs:
        yield step_costs(outcome)
    if split := [row for row in rows if row.split]:
        yield time_split(outcome, split)
    if timed:
        yield efficiency(outcome, timed)
    if (figure := reliability(outcome, drafting)) is not None:
        yield figure
