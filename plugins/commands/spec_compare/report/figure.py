"""A figure of the report: one drawing, or several small ones with one legend, and its data as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from spec_compare.figures.facets import facets
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import Row
from spec_compare.report import svg
from spec_compare.report.looks import Key

TOGETHER = 8
"""Max contenders of a drawing with lines."""


@attrs.frozen
class Panel:
    """Contenders that share a drawing. title: their facet; empty if there is only one drawing."""

    title: str
    rows: list[Row]


@attrs.frozen
class Part:
    """A drawing. caption: empty if the figure has only one. drawn: matplotlib's figure."""

    caption: str
    svg: str
    drawn: Any = attrs.field(eq=False, repr=False)


@attrs.frozen
class Figure:
    """name: of its element. parts: its drawings. legend: keys of its series. heads, cells: its data."""

    name: str
    title: str
    about: str
    parts: list[Part]
    heads: list[str]
    cells: list[list[str]]
    legend: list[Key] = attrs.field(factory=list)


def facet_panels(outcome: Outcome, rows: Sequence[Row], size: int | None = TOGETHER) -> list[Panel]:
    """The rows by facet, at most ``size`` in a panel; None for no limit. A facet in several parts is divided evenly."""
    listed = []
    for facet in facets(outcome.header):
        own = [row for row in rows if row.contender in facet.series or row.contender == facet.baseline]
        listed += [(facet.title, part) for part in _evenly(own, size or max(len(own), 1))]
    titles = [title for title, _ in listed]
    return [Panel(_panel_title(titles, n) if len(listed) > 1 else "", part) for n, (_, part) in enumerate(listed)]


def _evenly(rows: list[Row], size: int) -> list[list[Row]]:
    count = -(-len(rows) // size)
    return [rows[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]


def _panel_title(titles: list[str], n: int) -> str:
    """A title, with its number if several have it."""
    count = titles.count(titles[n])
    return titles[n] if count == 1 else f"{titles[n]} ({titles[:n].count(titles[n]) + 1} of {count})"


def part_of(name: str, number: int, title: str, caption: str, drawn: Any) -> Part:
    """A drawing as SVG. title: what a screen reader says."""
    label = ". ".join(filter(None, (title, caption, "The data follow as a table.")))
    return Part(caption, svg.text_of(drawn, f"{name}-{number}", label), drawn)


def figure_of(
    name: str,
    title: str,
    about: str,
    drawings: Iterable[tuple[str, Any]],
    heads: list[str],
    cells: list[list[str]],
    legend: Sequence[Key] = (),
) -> Figure:
    """A figure. drawings: (caption, drawing)."""
    parts = [part_of(name, number, title, caption, drawn) for number, (caption, drawn) in enumerate(drawings)]
    return Figure(name, title, about, parts, heads, cells, list(legend))


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def span(row: Row) -> str:
    return "-" if row.low is None or row.high is None else f"{row.low:.2f} to {row.high:.2f}"
