"""Prints rows as tables: one of at most 80 columns, or with all figures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from spec_commands.common import print_note
from spec_commands.printing import text_of
from spec_commands.timing_warnings import TimingWarning

from spec_compare.columns import COLUMNS, FIRST_OUT, LEFT, informative_columns, title
from spec_compare.difference import Difference
from spec_compare.summary import ALL, Row

NARROW = 80
"""Width of the table if the output is not a terminal."""
WIDE = 10_000
"""Width with ``--wide``: lines are not folded."""
FOLDED = "identical"
GAP = 2
"""Characters between two columns."""


def show(
    rows: list[Row],
    differing: Iterable[Difference],
    warnings: Iterable[TimingWarning] = (),
    wide: bool = False,
    batch: int = 1,
    baselines: Mapping[str, str] | None = None,
) -> None:
    """Print a table per family, the one over all prompts last, then bounds, differences and warnings.

    batch: prompts that ran together. baselines: {contender: the plain decoding it is compared with}.
    """
    families = list(dict.fromkeys(r.family for r in rows))
    console = Console(file=sys.stdout, width=width(wide), highlight=False)
    for family in families[:-1] if len(families) == 2 else families:
        family_rows = [r for r in rows if r.family == family]
        name = "all families" if family == ALL else family
        _print(
            console,
            f"{name}, {family_rows[0].prompts} prompts",
            family_rows,
            informative_columns(family_rows, wide, batch),
            batch,
        )
    whole = rows_over_all(rows)
    rests = (rest(row, whole, baselines or {}) for row in whole)
    for line in [*filter(None, [*map(reading, whole), *rests]), *map(describe_difference, differing)]:
        console.print(text_of(line), soft_wrap=True)
    for warning in warnings:
        console.print(text_of(f"warning: {warning.text}"), soft_wrap=True)


def width(wide: bool) -> int | None:
    """Characters of a line; None: those of the terminal."""
    if wide:
        return WIDE
    return None if sys.stdout.isatty() else NARROW


def rows_over_all(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.family == ALL]


def reading(row: Row) -> str:
    """The bounds of a speedup in words; empty for plain decoding, and for a speedup that is not shown."""
    if row.roof_fraction is None or row.acceptance_bound is None or row.hardware_bound is None:
        return ""
    parts = [f"{row.contender}: {row.roof_fraction:.2f} of what its acceptance allows ({row.acceptance_bound:.2f}×)"]
    if row.drafter_bound is not None:
        parts.append(f"with every draft accepted {row.drafter_bound:.2f}×")
    parts.append(f"the machine allows {row.hardware_bound:.2f}× ({row.hardware_drafts} drafted tokens per step)")
    return "; ".join(parts)


SHORT = 0.9
"""Share of a bound below which the time of a step is named by its parts."""


def rest(row: Row, rows: Iterable[Row], baselines: Mapping[str, str]) -> str:
    """Parts of the time of a step, beside plain decoding's, if less than SHORT of the bound was reached; else empty.

    baselines: {contender: the plain decoding it is compared with}.
    """
    plain = next((r for r in rows if r.contender == baselines.get(row.contender)), None)
    if row.roof_fraction is None or row.roof_fraction >= SHORT or plain is None:
        return ""
    own_parts, theirs = step_parts(row), step_parts(plain)
    return f"{row.contender}: a step takes {own_parts}; a plain step {theirs}"


def step_parts(row: Row) -> str:
    """Milliseconds of a step, and those of its hooks, the largest first. verify is the target's forward."""
    assert row.rate and row.tokens_per_step
    step = 1e3 * row.tokens_per_step / row.rate
    parts = sorted(row.split.items(), key=lambda part: -part[1])
    named = ", ".join(f"{name} {share * step:.3f}" for name, share in parts if share >= 0.01)
    return f"{step:.3f} ms ({named})"


def describe_difference(d: Difference) -> str:
    other, plain = ("the end" if t is None else f"token {t}" for t in (d.other, d.plain))
    gap = "" if d.gap is None else f"; the target's two best scores there are {d.gap:.2g} apart"
    return f"{d.contender} differs on {d.prompt} at output position {d.position}: {other} for {plain}{gap}{_why(d)}"


def _why(d: Difference) -> str:
    """The explanation of ``--exact``; empty without it."""
    if d.flips is None:
        return ""
    scores = ", ".join(f"{score:.6g} of token {token}" for score, token in zip(d.scores, d.best, strict=True))
    cause = (
        "flips there too: numerics" if d.flips else "does not flip: the method, its rule or its rollback is at fault"
    )
    return f" ({scores}); plain decoding in steps of the same rows, {d.rows} here, {cause}"


def _print(console: Console, heading: str, rows: list[Row], names: list[str], batch: int) -> None:
    """Remove trailing spaces of lines, for output to a file."""
    with console.capture() as captured:
        table, out = fitting(console, rows, names, batch)
        console.print(text_of(heading, style="bold"), table, "", sep="\n")
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")
    if out:
        print_note(f"left out for lack of room: {', '.join(out)}; --wide and --json have everything")


def fitting(console: Console, rows: list[Row], names: list[str], batch: int = 1) -> tuple[Table, list[str]]:
    """The table, and the columns of FIRST_OUT that were left out to make it fit."""
    names, out = list(names), list[str]()
    for name in FIRST_OUT:
        if sum(min_width(n, rows, batch) + GAP for n in names) - GAP <= console.width:
            break
        if name in names:
            names.remove(name)
            out.append(name)
    return _table(rows, names, batch), out


def min_width(name: str, rows: list[Row], batch: int = 1) -> int:
    """Characters that a column needs; the last column may be folded between words."""
    cells = [title(name, batch), *(COLUMNS[name](row) for row in rows)]
    return max(len(part) for cell in cells for part in (cell.split() if name == FOLDED else [cell]))


def _table(rows: list[Row], names: list[str], batch: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    for name in names:
        table.add_column(title(name, batch), justify="left" if name in LEFT else "right", no_wrap=name != FOLDED)
    for row in rows:
        table.add_row(*(text_of(COLUMNS[name](row)) for name in names))
    return table
