"""Rows for people."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from spec_compare.difference import Difference
from spec_compare.summary import ALL, Row

COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda r: r.contender + (" (lossy)" if r.lossy else ""),
    "tokens/s": lambda r: _number(r.rate, ".1f"),
    "speedup": lambda r: _number(r.speedup, ".2f", "×"),
    "90 %": lambda r: "" if r.low is None or r.high is None else f"{r.low:.2f}-{r.high:.2f}",
    "with prefill": lambda r: _number(r.whole, ".2f", "×"),
    "tokens/step": lambda r: _number(r.tau_pooled, ".2f"),
    "acceptance": lambda r: _number(r.draft_acceptance, ".0%"),
    "draft length": lambda r: _number(r.mean_draft_length, ".1f"),
    "identical": lambda r: "yes" if r.identical == r.prompts else f"NO ({r.prompts - r.identical} of {r.prompts})",
}


WIDTH = 132
"""Where the output is no terminal."""


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def show(rows: list[Row], differing: list[Difference], width: int | None = None) -> None:
    """A table per family on standard output, the one over all prompts last."""
    console = Console(file=sys.stdout, width=width or (None if sys.stdout.isatty() else WIDTH))
    for family in dict.fromkeys(r.family for r in rows):
        mine = [r for r in rows if r.family == family]
        if family == ALL and len({r.family for r in rows}) == 2:
            continue
        title = f"{'all families' if family == ALL else family} · {mine[0].prompts} prompts"
        console.print(_table(title, mine))
    for d in differing:
        console.print(
            f"{d.contender} differs on {d.prompt} at output position {d.position}: token {d.other} for {d.plain}, "
            f"the target's two best scores are {d.gap:.2g} apart"
        )


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("method", "identical") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(column(row) for column in COLUMNS.values()))
    return table
