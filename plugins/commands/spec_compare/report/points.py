"""Figures with a point per contender: the cost of its steps, and its speedup over its tokens per step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spec_costs.bounds import perfect_bound
from spec_costs.curve import Curve

from spec_compare.figures.bounds import depth
from spec_compare.figures.facets import facets
from spec_compare.figures.outcome import Outcome, draft_max
from spec_compare.figures.summary import ALL, Row
from spec_compare.records.record import Record
from spec_compare.report import svg
from spec_compare.report.figure import Figure, Panel, facet_panels, figure_of, number
from spec_compare.report.looks import Key, Look, contender_looks, keys_of

EVEN = Look(svg.FAINT)
FREE = Look(svg.INK, linestyle="--")
BOUND = Look(svg.INK, linestyle=":")


def step_costs(outcome: Outcome) -> Figure:
    """T(n) of every plain decoding, with the mean number of rows of each contender."""
    titles = {facet.baseline: facet.title for facet in facets(outcome.header)}
    points = {baseline: working_points(outcome, baseline) for baseline in outcome.costs}
    drawings = [
        (titles[baseline] if len(outcome.costs) > 1 else "", _step_costs(outcome, baseline, points[baseline]))
        for baseline in outcome.costs
    ]
    about = "Time of a step by its rows, and where each contender works: the mean rows of its steps."
    cells = [line for baseline in outcome.costs for line in _cost_cells(outcome, baseline, points[baseline])]
    legend = keys_of(outcome, [name for listed in points.values() for name, _ in listed])
    heads = ["compared with", "contender", "rows", "ms", "plain steps"]
    return figure_of("cost", "Cost of a step", about, drawings, heads, cells, legend)


def working_points(outcome: Outcome, baseline: str) -> list[tuple[str, float]]:
    """(contender, mean rows of its steps) of all that are compared with this plain decoding."""
    names = [c.name for c in outcome.header.contenders if c.baseline == baseline]
    rows = [row for row in outcome.rows if row.family == ALL and row.contender in names]
    return [(row.contender, mean_rows(records_of(outcome, row.contender))) for row in rows]


def _step_costs(outcome: Outcome, baseline: str, points: list[tuple[str, float]]) -> Any:
    curve, own_looks = curve_of(outcome, baseline), contender_looks(outcome)
    with svg.axes() as ax:
        ax.plot(list(curve.seconds), [s / curve(1) for s in curve.seconds.values()], color=svg.INK, marker=".")
        for name, x in points:
            look = own_looks[name]
            ax.plot([x], [_between(curve, x) / curve(1)], **look.hollow)
        shown = rows_shown(outcome, baseline)
        ax.set_xlim(0, shown + 0.5)
        ax.set_ylim(0, 1.1 * max(s for n, s in curve.seconds.items() if n <= shown) / curve(1))
        svg.count_along(ax)
        ax.set_xlabel("rows of a step")
        ax.set_ylabel("time in plain steps")
        return ax.figure


def rows_shown(outcome: Outcome, baseline: str) -> int:
    """Rows of the largest step of these contenders: costs of prompts are in the data."""
    longest = max(draft_max(c) for c in outcome.header.contenders if c.baseline == baseline)
    return max(1 + longest, *(math.ceil(x) for _, x in working_points(outcome, baseline)))


def _cost_cells(outcome: Outcome, baseline: str, points: list[tuple[str, float]]) -> list[list[str]]:
    curve = curve_of(outcome, baseline)
    timed = [("", f"{n}", seconds) for n, seconds in curve.seconds.items()]
    timed += [(name, f"{x:.1f}", _between(curve, x)) for name, x in points]
    return [[baseline, name, n, f"{s * 1e3:.3f}", number(s / curve(1))] for name, n, s in timed]


def efficiency(outcome: Outcome, rows: list[Row]) -> Figure:
    """Speedup over tokens per step, with what the costs allow."""
    drawings = [(panel.title, _efficiency(outcome, panel)) for panel in facet_panels(outcome, rows, size=None)]
    heads = ["contender", "tokens per step", "speedup", "acceptance bound", "of bound", "hardware bound"]
    cells = [
        [
            r.contender,
            *map(number, (r.tokens_per_step, r.speedup, r.acceptance_bound, r.roof_fraction, r.hardware_bound)),
        ]
        for r in rows
    ]
    about = "Below the dashed line, time is lost to rejected tokens, to drafting, or outside the forward."
    legend = [Key.of("a step as cheap as a plain one", EVEN)]
    if outcome.costs:
        legend += [Key.of("free drafts, all accepted", FREE), Key.of("the machine's bound", BOUND)]
    legend += keys_of(outcome, [row.contender for row in rows])
    return figure_of("efficiency", "Speedup over tokens per step", about, drawings, heads, cells, legend)


def _efficiency(outcome: Outcome, panel: Panel) -> Any:
    own_looks, names = contender_looks(outcome), {row.contender for row in panel.rows}
    facet = next(f for f in facets(outcome.header) if names & f.series.keys())
    with svg.axes() as ax:
        x_max = max(row.tokens_per_step or 1.0 for row in panel.rows) * 1.15
        ax.plot([1, x_max], [1, x_max], color=EVEN.color)
        if facet.baseline in outcome.costs:
            _draw_bounds(ax, outcome, facet.baseline, x_max)
        for row in panel.rows:
            look = own_looks[row.contender]
            ax.plot([row.tokens_per_step], [row.speedup], **look.hollow)
        ax.set_xlim(0.9, x_max)
        ax.set_xlabel("tokens per step")
        ax.set_ylabel("speedup")
        return ax.figure


def _draw_bounds(ax: Any, outcome: Outcome, baseline: str, x_max: float) -> None:
    curve = curve_of(outcome, baseline)
    longest = max(draft_max(c) for c in outcome.header.contenders if c.baseline == baseline)
    ks = [k for k in range(longest + 1) if k + 1 <= x_max + 1]
    ax.plot([k + 1 for k in ks], [(k + 1) * curve(1) / curve(k + 1) for k in ks], **FREE.options)
    best = perfect_bound(curve, longest).speedup
    ax.axhline(best, color=BOUND.color, linestyle=BOUND.linestyle)
    ax.annotate(f"{best:.2f}", (1, best), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=10)


def records_of(outcome: Outcome, contender: str) -> list[Record]:
    return [record for lap in outcome.laps if lap.contender == contender for record in lap.records]


def curve_of(outcome: Outcome, baseline: str) -> Curve:
    """Cost curve at the mean depth of the laps."""
    return outcome.costs[baseline].curves(outcome.header.batch).at(depth(records_of(outcome, baseline)))


def mean_rows(records: Sequence[Record]) -> float:
    drafted = [d for record in records for d in record.steps.drafted]
    return 1 + sum(drafted) / len(drafted) if drafted else 1.0


def _between(curve: Curve, x: float) -> float:
    low = int(x)
    return curve(low) + (curve(low + 1) - curve(low)) * (x - low)
