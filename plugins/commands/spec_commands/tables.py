"""Lays rows out for a terminal: as a table, or as a list where the table does not fit.

No layout leaves a column out.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from shutil import get_terminal_size

import attrs
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table

from spec_commands.printing import escape_controls, print_line, text_of

WIDE = 10_000
"""Width at which lines are not folded."""
NARROW = 80
"""Width of a table if the output is not a terminal."""
LABEL = 24
"""Characters that a text in the last column has at least before it is folded."""


@attrs.frozen
class Cells:
    """A table of texts. The first column is a name.

    left: titles of the columns whose texts begin at the left. groups: {number of a row: the title of the group that
    begins with it}.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[str]
    groups: Mapping[int, str] = attrs.field(factory=dict)


def terminal_width(otherwise: int = NARROW) -> int:
    """Characters of a line. otherwise: if the output is not a terminal."""
    return get_terminal_size().columns if sys.stdout.isatty() else otherwise


def show_table(cells: Cells, width: int | None = None, title: str = "") -> None:
    """Print a table. title: of the table, on a line above it."""
    for line in [*([title] if title else []), *lay_out(cells, width or terminal_width()), ""]:
        print_line(line)


def lay_out(cells: Cells, width: int) -> list[str]:
    """The lines of the table, or of the list if the table does not fit. Texts are folded between words."""
    console = _console(width)
    lines = _tables(console, cells) if is_fitting(cells, width) else _lists(console, cells)
    return [line.rstrip() for line in lines]


def is_fitting(cells: Cells, width: int) -> bool:
    """Whether the table fits lines of this width; else it is a list."""
    return _console(WIDE).measure(_table(cells, cells.rows)).minimum <= width


def _groups(cells: Cells) -> Iterator[tuple[str, Sequence[Sequence[str]]]]:
    """(title, rows) of the groups; the title is empty for rows before the first one."""
    starts = sorted({0, *cells.groups})
    for start, end in zip(starts, [*starts[1:], len(cells.rows)], strict=True):
        yield cells.groups.get(start, ""), cells.rows[start:end]


def _tables(console: Console, cells: Cells) -> Iterator[str]:
    """The table; its groups have columns of the same widths, below their titles."""
    if not cells.groups:
        yield from _render(console, _table(cells, cells.rows))
        return
    yield from _render(console, _table(cells, ()))
    for title, rows in _groups(cells):
        yield from _render(console, text_of(f"{title}:")) if title else ()
        yield from _render(console, _table(cells, rows, has_heads=False))


def _console(width: int) -> Console:
    """A console that renders plain lines, also in a notebook."""
    return Console(file=StringIO(), width=width, color_system=None, highlight=False, force_jupyter=False)


def _table(cells: Cells, rows: Iterable[Sequence[str]], has_heads: bool = True) -> Table:
    """A table of some of the rows, as wide as of all. Only the texts of the last column are folded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), show_header=has_heads)
    columns = list(zip(cells.titles, *cells.rows, strict=True))
    for i, column in enumerate(columns):
        last = i == len(columns) - 1
        size = max(map(_label_width if last else _width, column))
        justify: JustifyMethod = "left" if column[0] in cells.left else "right"
        table.add_column(text_of(column[0]), justify=justify, min_width=size, no_wrap=not last)
    for row in rows:
        table.add_row(*map(text_of, row))
    return table


def _width(text: str) -> int:
    return cell_len(escape_controls(text))


def _label_width(text: str) -> int:
    return max([min(_width(text), LABEL), *map(_width, text.split())])


def _lists(console: Console, cells: Cells) -> Iterable[str]:
    """One column per line, below the name of the row."""
    for title, rows in _groups(cells):
        yield from _render(console, text_of(f"{title}:")) if title else ()
        yield from _list(console, cells.titles, rows)


def _list(console: Console, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    for name, *row in rows:
        yield from _render(console, text_of(name))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        for title, cell in zip(titles[1:], row, strict=True):
            grid.add_row(text_of(f"  {title}"), text_of(cell))
        yield from _render(console, grid)


def _render(console: Console, table: RenderableType) -> list[str]:
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()
