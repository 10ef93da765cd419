"""Figures with a line per contender, whose name stands above it: speedups, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_compare.figures.facets import short_names
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL, Row
from spec_compare.figures.titles import cut_middle
from spec_compare.report import svg
from spec_compare.report.figure import Figure, Panel, facet_panels, figure_of, number, span
from spec_compare.report.hatching import hatch_name, hatch_segments
from spec_compare.report.looks import Key, contender_looks

PER_ROW = 0.46
"""Inches of a contender, its name included."""
BAR = 0.4
"""Height of a bar; the bars of two contenders are 1 apart."""


def speedups(outcome: Outcome, rows: list[Row]) -> Figure:
    """Figure of the speedups over all prompts with intervals, and of each family."""
    families = [row for row in outcome.rows if row.family != ALL and row.speedup is not None]
    ends = [value for row in [*rows, *families] for value in (row.speedup, row.low, row.high) if value is not None]
    limits = min([1.0, *ends]) - 0.05, max([1.0, *ends]) + 0.05
    drawings = [
        (panel.title, _speedups(outcome, panel, families, limits)) for panel in facet_panels(outcome, rows, size=None)
    ]
    about = "A point per contender with the interval over prompts; small strokes are families of prompts."
    heads = ["contender", "speedup", "interval", *dict.fromkeys(f.family for f in families)]
    cells = [
        [r.contender, number(r.speedup), span(r), *(number(_of(families, r.contender, f)) for f in heads[3:])]
        for r in rows
    ]
    return figure_of("speedup", "Speedup", about, drawings, heads, cells)


def _speedups(outcome: Outcome, panel: Panel, families: list[Row], limits: tuple[float, float]) -> Any:
    own_looks = contender_looks(outcome)
    with svg.axes(height=0.7 + PER_ROW * len(panel.rows)) as ax:
        for y, row in enumerate(panel.rows):
            look = own_looks[row.contender]
            strokes = [f.speedup for f in families if f.contender == row.contender]
            ax.plot(strokes, [y] * len(strokes), "|", color=look.color, alpha=0.7, markersize=9)
            if row.low is not None and row.high is not None:
                ax.plot([row.low, row.high], [y, y], color=look.color, linewidth=2.5)
            ax.plot([row.speedup], [y], markersize=8, color=look.color, marker=look.marker)
        ax.axvline(1, color=svg.INK, linewidth=1)
        _name_rows(outcome, ax, panel.rows, [f"{row.speedup:.2f}×" for row in panel.rows])
        ax.set_xlim(*limits)
        ax.set_xlabel("speedup over plain decoding")
        return ax.figure


def _name_rows(outcome: Outcome, ax: Any, rows: Sequence[Row], values: Sequence[str]) -> None:
    """Write each name above its line, and a value at the end of the line."""
    names = short_names(outcome.header)
    at = {"transform": ax.get_yaxis_transform(), "va": "bottom", "fontsize": 10}
    for y, (row, value) in enumerate(zip(rows, values, strict=True)):
        ax.text(0, y - 0.22, cut_middle(names[row.contender]), ha="left", **at)
        ax.text(1, y - 0.22, value, ha="right", **at)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(False, axis="y")
    ax.set_ylim(len(rows) - 0.4, -0.75)


def _of(rows: list[Row], contender: str, family: str) -> float | None:
    return next((r.speedup for r in rows if (r.contender, r.family) == (contender, family)), None)


def time_split(outcome: Outcome, rows: list[Row]) -> Figure:
    """Share of the time of a step by hook."""
    parts = list(dict.fromkeys(part for row in rows for part in row.split))
    drawings = [
        (panel.title, _time_split(outcome, panel.rows, parts)) for panel in facet_panels(outcome, rows, size=None)
    ]
    cells = [[row.contender, *(f"{row.split.get(part, 0.0):.1%}" for part in parts)] for row in rows]
    about = "verify is the target's forward; host is everything outside the hooks."
    legend = [Key(part, svg.VARIABLES[svg.series(i)], "", "none", hatch_name(i)) for i, part in enumerate(parts)]
    return figure_of("split", "Where the time goes", about, drawings, ["contender", *parts], cells, legend)


def _time_split(outcome: Outcome, rows: list[Row], parts: list[str]) -> Any:
    from matplotlib.collections import LineCollection

    with svg.axes(height=0.8 + PER_ROW * len(rows)) as ax:
        for i, part in enumerate(parts):
            left = [sum(row.split.get(p, 0.0) for p in parts[:i]) for row in rows]
            width = [row.split.get(part, 0.0) for row in rows]
            ax.barh(range(len(rows)), width, left=left, height=BAR, color="none", edgecolor=svg.series(i))
            bars = enumerate(zip(left, width, strict=True))
            lines = [line for y, bar in bars for line in hatch_segments(hatch_name(i), *bar, y, BAR)]
            ax.add_collection(LineCollection(lines, colors=svg.series(i), linewidths=0.8))
        _name_rows(outcome, ax, rows, [""] * len(rows))
        ax.set_xlim(0, 1)
        ax.set_xlabel("share of the time of a step")
        return ax.figure
