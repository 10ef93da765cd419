"""The tables of a report: over all prompts, then of each family, with their rows by model and temperature."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from spec_compare.figures.columns import ABOUT, COLUMNS, INTERVAL, informative_columns, title
from spec_compare.figures.facets import facets
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL, Row, worst_first
from spec_compare.report.looks import cut_middle

NAME_MAX = 40
"""Max characters of a name in a table; the whole name is shown on hover."""
FIRST = ("method", "speedup", INTERVAL, "identical", "worst family", "tokens/step")
"""Columns that stand at the beginning, where a narrow page shows them."""


@attrs.frozen
class Column:
    """A column: its heading, what it says, and the id of its entry in the legend."""

    title: str
    about: str
    id: str


@attrs.frozen
class Line:
    """A row of a table. name: cut in the middle; whole: the name itself."""

    name: str
    whole: str
    cells: list[str]


@attrs.frozen
class Group:
    """The rows of a facet. title: empty if the comparison has one facet."""

    title: str
    lines: list[Line]


@attrs.frozen
class Section:
    """A table."""

    caption: str
    columns: list[Column]
    groups: list[Group]


def sections(result: Outcome) -> list[Section]:
    """The table over all prompts, then that of each family if there are several, the smallest speedup first."""
    names = [ALL, *(family for family in worst_first(result.rows) if family != ALL)]
    return [_section(result, family) for family in (names[:1] if len(names) == 2 else names)]


def _section(result: Outcome, family: str) -> Section:
    rows = {row.contender: row for row in result.rows if row.family == family}
    header = result.header
    informative = informative_columns([*rows.values()], True, header.batch)
    names = [*(name for name in FIRST if name in informative), *(name for name in informative if name not in FIRST)]
    columns = [
        Column(
            title(name, header.batch, header.interval), ABOUT[name], f"column-{re.sub(r'[^a-z]+', '-', name.lower())}"
        )
        for name in names
    ]
    listed = facets(header)
    groups = [
        Group(
            facet.title if len(listed) > 1 else "",
            [
                _line(rows[contender], series, names)
                for contender, series in {facet.baseline: facet.plain, **facet.series}.items()
                if contender in rows
            ],
        )
        for facet in listed
    ]
    caption = f"{'All families' if family == ALL else family}, {next(iter(rows.values())).prompts} prompts"
    return Section(caption, columns, [group for group in groups if group.lines])


def element_id(column: str) -> str:
    """The id of a column's entry in the legend."""
    return f"column-{re.sub(r'[^a-z]+', '-', column.lower()).strip('-')}"


def _line(row: Row, series: str, names: Iterable[str]) -> Line:
    cells = [COLUMNS[name](row) for name in names if name != "method"]
    return Line(cut_middle(series, NAME_MAX), row.contender, cells)
