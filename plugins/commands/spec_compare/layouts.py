"""Lays rows out for a terminal: as a table, with names on lines of their own, or as a list, whichever fits first.

No layout leaves a column out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import attrs
from rich.cells import cell_len
from spec_commands.printing import printable

GAP = "  "
INDENT = "  "
LABEL = 24
"""Characters that a text in the last column has at least before it is folded."""


@attrs.frozen
class Cells:
    """A table of texts. left: titles of the columns whose texts begin at the left. The first column is a name."""

    titles: list[str]
    rows: list[list[str]]
    left: frozenset[str]


def lay_out(cells: Cells, width: int) -> list[str]:
    """The lines of the first layout that fits; a name may be longer than a line."""
    cells = attrs.evolve(cells, rows=[[printable(cell) for cell in row] for row in cells.rows])
    if _required_width(cells) <= width:
        return _table(cells, width)
    pivoted = _without_names(cells)
    if len(INDENT) + _required_width(pivoted) <= width:
        return _under_names(cells, pivoted, width)
    return _lists(cells, width)


def _required_width(cells: Cells) -> int:
    """Characters of a line: the last column may be folded between words."""
    *fixed, last = _widths(cells)
    folded = max(map(_min_width, [cells.titles[-1], *(row[-1] for row in cells.rows)]))
    return sum(fixed) + min(last, folded) + len(GAP) * len(fixed)


def _min_width(text: str) -> int:
    return max([min(cell_len(text), LABEL), *map(cell_len, text.split())])


def _widths(cells: Cells) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(cells.titles, *cells.rows, strict=True)]


def _without_names(cells: Cells) -> Cells:
    return attrs.evolve(cells, titles=cells.titles[1:], rows=[row[1:] for row in cells.rows])


def _table(cells: Cells, width: int) -> list[str]:
    head, *body = _lines(cells, width)
    return [*head, "─" * max(cell_len(line) for block in (head, *body) for line in block), *_flat(body)]


def _under_names(cells: Cells, pivoted: Cells, width: int) -> list[str]:
    head, *body = [[INDENT + line for line in block] for block in _lines(pivoted, width - len(INDENT))]
    rule = "─" * max(cell_len(line) for block in (head, *body) for line in block)
    named = ([*_fold(row[0], width), *block] for row, block in zip(cells.rows, body, strict=True))
    return [*head, rule, *_flat(named)]


def _lists(cells: Cells, width: int) -> list[str]:
    """A column a line, below the name of the row."""
    label = max(map(cell_len, cells.titles[1:]))
    lines = []
    for name, *row in cells.rows:
        lines += _fold(name, width)
        for title, cell in zip(cells.titles[1:], row, strict=True):
            head = INDENT + _pad(title, label, True) + GAP
            first, *more = _fold(cell, max(width - len(head), 1))
            lines += [head + first, *(" " * len(head) + line for line in more)]
    return [line.rstrip() for line in lines]


def _lines(cells: Cells, width: int) -> list[list[str]]:
    """The head and the rows as lines; a row has several if its last text is folded."""
    *widths, _ = _widths(cells)
    before = sum(widths) + len(GAP) * len(widths)
    blocks = []
    for row in [cells.titles, *cells.rows]:
        columns = zip(cells.titles, row, widths, strict=False)
        front = "".join(_pad(cell, size, title in cells.left) + GAP for title, cell, size in columns)
        first, *more = _fold(row[-1], max(width - before, 1))
        blocks.append([(front + first).rstrip(), *(" " * before + line for line in more)])
    return blocks


def _fold(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]


def _pad(text: str, width: int, left: bool) -> str:
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


def _flat(blocks: Iterable[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]
