"""Prints rows as tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from spec_cli.common import note
from spec_cli.timing_warnings import TimingWarning

from spec_compare.difference import Difference
from spec_compare.summary import ALL, INTERVAL, Row

WIDE = 200
"""Width if the output is not a terminal: lines are not folded."""
POSITIONS = 4
"""Number of draft positions whose acceptance is shown."""
FEW = 30
"""A rate of fewer drafts than this is shown with their number: its standard error may exceed nine points."""

COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda r: r.contender,
    "tokens/s": lambda r: _number(r.rate, ".1f"),
    "speedup": lambda r: _number(r.speedup, ".2f", "×"),
    f"{INTERVAL:.0%}": lambda r: "" if r.low is None or r.high is None else f"{r.low:.2f}-{r.high:.2f}",
    "by CPU time": lambda r: _number(r.cpu_speedup, ".2f", "×"),
    "with prefill": lambda r: _number(r.whole, ".2f", "×"),
    "tokens/step": lambda r: _number(r.tokens_per_step, ".2f"),
    "acceptance": lambda r: _number(r.draft_acceptance, ".0%"),
    "draft length": lambda r: _number(r.mean_draft_length, ".1f"),
    "by position": lambda r: by_position(r),
    "identical": lambda r: identical(r),
}
FIRST_OUT = ("by position", "draft length", "with prefill", "by CPU time", f"{INTERVAL:.0%}", "acceptance")
"""Columns that are left out on a narrow terminal, in this order."""
FOLDED = "identical"
GAP = 3
"""Characters between two columns."""
LEFT = ("method", "by position", "identical")


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def by_position(row: Row) -> str:
    """Conditional acceptance of the first positions; with the count if there are few drafts: ``100% of 3``."""
    tested = row.tested_per_pos[:POSITIONS]
    pairs = zip(row.conditional, tested, strict=False)
    return ", ".join(f"{rate:.0%}" if n >= FEW else f"{rate:.0%} of {n}" for rate, n in pairs) or "-"


def identical(row: Row) -> str:
    """Whether the texts equal plain decoding's."""
    if row.label is not None:
        return f"{row.label} ({row.identical} of {row.prompts} identical)"
    return "yes" if row.identical == row.prompts else f"DIFFERS ({row.prompts - row.identical} of {row.prompts})"


def show(rows: list[Row], differing: Iterable[Difference], warnings: Iterable[TimingWarning] = ()) -> None:
    """Prints a table per family, the one over all prompts last, then differences and warnings."""
    families = list(dict.fromkeys(r.family for r in rows))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False)
    for family in families[:-1] if len(families) == 2 else families:
        mine = [r for r in rows if r.family == family]
        _print(console, f"{'all families' if family == ALL else family}, {mine[0].prompts} prompts", mine)
    for difference in differing:
        console.print(said(difference), soft_wrap=True, markup=False)
    for warning in warnings:
        console.print(f"warning: {warning.text}", soft_wrap=True, markup=False)


def said(d: Difference) -> str:
    other, plain = ("the end" if t is None else f"token {t}" for t in (d.other, d.plain))
    gap = "" if d.gap is None else f"; the target's two best scores there are {d.gap:.2g} apart"
    return f"{d.contender} differs on {d.prompt} at output position {d.position}: {other} for {plain}{gap}"


def _print(console: Console, title: str, rows: list[Row]) -> None:
    """Removes trailing spaces of lines, for output to a file."""
    with console.capture() as captured:
        table, out = fitting(console, rows)
        console.print(Text(title, style="bold"), table, sep="\n")
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")
    if out:
        note(f"left out for lack of room: {', '.join(out)}; --json has everything")


def fitting(console: Console, rows: list[Row]) -> tuple[Table, list[str]]:
    """The table, and the columns of FIRST_OUT that were left out to make it fit."""
    names, out = list(COLUMNS), list[str]()
    while len(out) < len(FIRST_OUT) and sum(min_width(name, rows) + GAP for name in names) > console.width:
        out.append(FIRST_OUT[len(out)])
        names.remove(out[-1])
    return _table(rows, names), out


def min_width(name: str, rows: list[Row]) -> int:
    """Characters that a column needs; the last column may be folded between words."""
    cells = [name, *(COLUMNS[name](row) for row in rows)]
    return max(len(part) for cell in cells for part in (cell.split() if name == FOLDED else [cell]))


def _table(rows: list[Row], names: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=name != FOLDED)
    for row in rows:
        table.add_row(*(Text(COLUMNS[name](row)) for name in names))
    return table
