"""Figures with a curve per contender: acceptance by position, and accepted lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import Row
from spec_compare.report import svg
from spec_compare.report.figure import Figure, Panel, facet_panels, figure_of, number
from spec_compare.report.looks import contender_looks, keys_of

POSITIONS = 16
"""Number of draft positions that are shown."""


def acceptance(outcome: Outcome, rows: list[Row]) -> Figure:
    """Marginal and conditional, by position."""
    drawings = [(panel.title, _acceptance(outcome, panel)) for panel in facet_panels(outcome, rows)]
    about = (
        "Marginal: accepted of the drafts that reached a position. "
        "Conditional: accepted of those whose tokens before it were accepted."
    )
    cells = [
        [row.contender, str(i + 1), number(m), number(_get(row.conditional, i)), str(_get(row.tested_per_pos, i) or 0)]
        for row in rows
        for i, m in enumerate(row.marginal[:POSITIONS])
    ]
    heads = ["contender", "position", "marginal", "conditional", "tests"]
    legend = keys_of(outcome, [row.contender for row in rows])
    return figure_of("acceptance", "Acceptance by position", about, drawings, heads, cells, legend)


def _acceptance(outcome: Outcome, panel: Panel) -> Any:
    own_looks = contender_looks(outcome)
    with svg.axes(2) as (left, right):
        for row in panel.rows:
            look = own_looks[row.contender].options | {"markersize": 4}
            for ax, values in ((left, row.marginal), (right, row.conditional)):
                ax.plot(range(1, len(values[:POSITIONS]) + 1), values[:POSITIONS], **look)
        for ax, title in ((left, "marginal"), (right, "conditional")):
            svg.count_along(ax)
            ax.set_title(title, fontsize=11)
            ax.set_ylim(0, 1.05)
        right.set_yticklabels([])
        left.set_ylabel("accepted")
        left.figure.supxlabel("position in the draft", fontsize=11)
        return left.figure


def lengths(outcome: Outcome, rows: list[Row]) -> Figure:
    """Figure of the number of accepted tokens of a draft."""
    drawings = [(panel.title, _lengths(outcome, panel)) for panel in facet_panels(outcome, rows)]
    cells = [
        [row.contender, str(n), str(count), f"{share:.1%}"]
        for row in rows
        for n, (count, share) in enumerate(zip(row.acceptance_histogram, shares(row), strict=True))
    ]
    about = "Share of the drafts by their number of accepted tokens. Steps without a draft are left out."
    legend = keys_of(outcome, [row.contender for row in rows])
    heads = ["contender", "accepted", "drafts", "share"]
    return figure_of("lengths", "Accepted lengths", about, drawings, heads, cells, legend)


def _lengths(outcome: Outcome, panel: Panel) -> Any:
    own_looks = contender_looks(outcome)
    with svg.axes() as ax:
        for row in panel.rows:
            values = shares(row)
            ax.plot(range(len(values)), values, markersize=4, **own_looks[row.contender].options)
        svg.count_along(ax)
        ax.set_xlabel("accepted tokens of a draft")
        ax.set_ylabel("share of drafts")
        ax.set_ylim(bottom=0)
        return ax.figure


def shares(row: Row) -> list[float]:
    """The histogram of accepted tokens as shares of the drafts."""
    total = sum(row.acceptance_histogram)
    return [count / total for count in row.acceptance_histogram]


def _get(values: Sequence[Any], i: int) -> Any:
    return values[i] if i < len(values) else None
