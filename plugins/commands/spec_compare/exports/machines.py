"""One comparison on several machines: their figures side by side, never pooled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
from spec_commands.tables import WIDE, Cells, show_table, terminal_width

from spec_compare.figures.columns import COLUMNS, EACH, INTERVAL, interval_title
from spec_compare.figures.outcome import Outcome, recompute_outcome
from spec_compare.figures.overlap import intervals_overlap
from spec_compare.figures.summary import ALL, Row
from spec_compare.records.header import ContenderFacts, Header
from spec_compare.records.reading import read_results
from spec_core.errors import UsageError, quote_value

MACHINE = ("threads", "device")
"""Settings that may differ between machines."""


@attrs.frozen(eq=False)
class Column:
    """One machine. title: its name, and its directory if several have that name."""

    title: str
    folder: Path
    outcome: Outcome


def columns(folders: Iterable[Path]) -> list[Column]:
    """The machines in this order. Raises UsageError if they did not run the same comparison."""
    results = [(folder, recompute_outcome(read_results(folder))) for folder in folders]
    if len(results) < 2:
        raise UsageError("merge needs two directories or more", hint="spec compare merge A B; show DIR prints one")
    first_folder, first = results[0]
    for folder, outcome in results[1:]:
        if different := differences(first.header, outcome.header):
            raise UsageError(
                f"{folder} has another comparison than {first_folder}: {different[0]}",
                hint="merge the results of one command line on several machines",
            )
    hosts = [outcome.header.host for _, outcome in results]
    return [Column(_title(o.header, f, hosts.count(o.header.host) > 1), f, o) for f, o in results]


def _title(header: Header, folder: Path, ambiguous: bool) -> str:
    host = header.host or "?"
    return f"{host} ({folder.name})" if ambiguous else host


def differences(a: Header, b: Header) -> list[str]:
    """Differences between the questions of two comparisons, in words."""
    old, new = question(a), question(b)
    return [
        f"{key} is {quote_value(old.get(key))} and {quote_value(new.get(key))}"
        for key in dict.fromkeys([*old, *new])
        if key not in old or key not in new or old[key] != new[key]
    ]


def question(header: Header) -> dict[str, Any]:
    """Everything that must be equal: prompts, models, contenders and their settings, not machine or version."""
    asked: dict[str, Any] = {name: getattr(header, name) for name in ("seed", "batch", "reuse_turns")}
    asked["prompts"] = header.prompts.sha256
    asked |= {f"model {i}: files": [f.sha256 for f in target.files] for i, target in enumerate(header.targets)}
    for contender in header.contenders:
        asked |= _settings(contender)
    return asked


def _settings(contender: ContenderFacts) -> dict[str, Any]:
    values = {name: s.value for name, s in contender.settings.items() if name not in (*MACHINE, "model", "methods")}
    return {f"{contender.name}: {name}": value for name, value in values.items()} | {f"{contender.name}": "a contender"}


def body(columns: list[Column]) -> dict[str, Any]:
    """The rows of every machine, what it is, and whether the intervals of a speedup overlap; null without intervals."""
    return {
        "machines": [
            {
                "machine": c.title,
                "cpu": c.outcome.header.environment.get("cpu"),
                "device": c.outcome.header.targets[0].device,
                "rows": [attrs.asdict(row) for row in c.outcome.rows],
            }
            for c in columns
        ],
        "overlap": [
            {"contender": name, "family": family, "overlap": overlap(columns, name, family)}
            for family in families_of(columns)
            for name in drafting_contenders(columns)
        ],
    }


def families_of(columns: Iterable[Column]) -> list[str]:
    """The families of prompts, all of them together last."""
    return list(dict.fromkeys(row.family for c in columns for row in c.outcome.rows))


def drafting_contenders(columns: Iterable[Column]) -> list[str]:
    """The contenders without plain decoding, whose speedup is 1."""
    return list(dict.fromkeys(name for c in columns for name, base in c.outcome.baselines.items() if name != base))


def overlap(columns: Iterable[Column], name: str, family: str) -> bool | None:
    """Whether the intervals of a contender's speedup on all machines overlap; None if one machine has none."""
    rows = [row_of(column, name, family) for column in columns]
    whole = [row for row in rows if row is not None]
    return intervals_overlap(whole) if len(whole) == len(rows) else None


def row_of(column: Column, name: str, family: str) -> Row | None:
    return next((r for r in column.outcome.rows if (r.contender, r.family) == (name, family)), None)


def show_columns(columns: list[Column]) -> None:
    """A table per family: a line per contender, the figures of each machine in columns of its own."""
    families = families_of(columns)
    for family in families[:-1] if len(families) == 2 else families:
        show_table(_table(columns, family), terminal_width(WIDE), "all families" if family == ALL else family)


def _table(columns: list[Column], family: str) -> Cells:
    figures = [("tokens/s", "speedup", interval_title(c.outcome.header.interval), "tokens/step") for c in columns]
    titles = [f"{c.title}: {figure}" for c, own in zip(columns, figures, strict=True) for figure in (*own, "identical")]
    names = list(dict.fromkeys(row.contender for c in columns for row in c.outcome.rows))
    drafts = drafting_contenders(columns)
    rows = [
        [
            name,
            *(cell for c in columns for cell in _cells(c, name, family)),
            OVERLAPS[overlap(columns, name, family)] if name in drafts else "-",
        ]
        for name in names
    ]
    return Cells(["method", *titles, "intervals"], rows, {"method", "intervals", *titles[4::5]})


OVERLAPS = {True: "overlap", False: "do not overlap", None: "-"}


def _cells(column: Column, name: str, family: str) -> tuple[str, str, str, str, str]:
    row = row_of(column, name, family)
    if row is None:
        return "-", "-", "-", "-", "-"
    figures = (COLUMNS[one](row) or "-" for one in (EACH, "speedup", INTERVAL, "tokens/step", "identical"))
    rate, speedup, interval, steps, same = figures
    return rate, speedup, interval, steps, same
