"""The tables of a report: over all prompts, then of each family, with their rows by model and temperature.

Each has the main columns, which fit a page, and all columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from spec_compare.figures.columns import ABOUT, COLUMNS, EACH, INTERVAL, informative_columns, title
from spec_compare.figures.facets import facets
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import ALL, Row, worst_first
from spec_compare.figures.table import cut_worst_families
from spec_compare.figures.titles import cut_middle
from spec_compare.records.header import Header

NAME_MAX = 40
"""Max characters of a name in a table; the whole name is shown on hover."""
MAIN = ("method", "speedup", INTERVAL, "identical", "worst family", "tokens/step", "acceptance", EACH)
"""Columns of the main tables, those first that a narrow page shows."""
FAMILY_MAX = 20
"""Max characters of the name of a family in a cell."""


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
    """A table. scrolls: whether it is wider than a page."""

    caption: str
    columns: list[Column]
    groups: list[Group]
    scrolls: bool = False


@attrs.frozen
class FamilyTables:
    """The tables of a family of prompts, or of all. complete: with all columns."""

    main: Section
    complete: Section


def sections(outcome: Outcome) -> list[FamilyTables]:
    """The tables over all prompts, then of each family if there are several, the smallest speedup first."""
    names = [ALL, *(family for family in worst_first(outcome.rows) if family != ALL)]
    return [_tables(outcome, family) for family in (names[:1] if len(names) == 2 else names)]


def _tables(outcome: Outcome, family: str) -> FamilyTables:
    rows = {row.contender: row for row in outcome.rows if row.family == family}
    informative = informative_columns([*rows.values()], True, outcome.header.batch)
    main = [name for name in MAIN if name in informative]
    names = [*main, *(name for name in informative if name not in main)]
    caption = f"{'All families' if family == ALL else family}, {next(iter(rows.values())).prompts} prompts"
    return FamilyTables(
        Section(caption, _columns(outcome.header, main), _groups(outcome, rows, main)),
        Section(
            f"{caption}, all columns", _columns(outcome.header, names), _groups(outcome, rows, names), scrolls=True
        ),
    )


def _columns(header: Header, names: Iterable[str]) -> list[Column]:
    return [Column(title(name, header.batch, header.interval), ABOUT[name], element_id(name)) for name in names]


def _groups(outcome: Outcome, rows: Mapping[str, Row], names: Sequence[str]) -> list[Group]:
    """The rows by facet; facets without rows are left out."""
    listed = facets(outcome.header)
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
    return [group for group in groups if group.lines]


def element_id(column: str) -> str:
    """The id of a column's entry in the legend."""
    return f"column-{re.sub(r'[^a-z]+', '-', column.lower()).strip('-')}"


def _line(row: Row, series: str, names: Iterable[str]) -> Line:
    (shown,) = cut_worst_families([row], FAMILY_MAX)
    cells = [COLUMNS[name](shown) for name in names if name != "method"]
    return Line(cut_middle(series, NAME_MAX), row.contender, cells)
