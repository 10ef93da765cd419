"""The context curve: speedup and tokens per step by the length of prompts, as ``--lengths`` made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from spec_commands.tables import Cells

from spec_compare.figures.summary import ALL, INTERVAL, passed_names, row
from spec_compare.records.record import Lap


@attrs.frozen
class LengthRow:
    """One contender on the prompts of one length. Fields as in ``Row``."""

    contender: str
    length: int
    prompts: int
    rate: float | None
    speedup: float | None
    low: float | None
    high: float | None
    tokens_per_step: float | None


def length_rows(
    laps: Iterable[Lap], labels: Mapping[str, str], lengths: Iterable[int], level: float = INTERVAL
) -> list[LengthRow]:
    """A row per contender and length."""
    laps = list(laps)
    names, passed = dict.fromkeys(lap.contender for lap in laps), passed_names(laps, labels)
    rows = []
    for length in lengths:
        own = [lap for lap in laps if all(record.prompt_tokens == length for record in lap.records)]
        for name in (name for name in names if any(lap.contender == name for lap in own)):
            one = row(own, name, ALL, passed, labels.get(name), None, level)
            values = (one.prompts, one.rate, one.speedup, one.low, one.high, one.tokens_per_step)
            rows.append(LengthRow(name, length, *values))
    return rows


def length_cells(rows: list[LengthRow]) -> Cells:
    """A line per contender: speedup and tokens per step at each length."""
    lengths = list(dict.fromkeys(row.length for row in rows))
    by_name: dict[str, dict[int, LengthRow]] = {}
    for one in rows:
        by_name.setdefault(one.contender, {})[one.length] = one
    lines = [[name, *(_cell(own.get(length)) for length in lengths)] for name, own in by_name.items()]
    return Cells(["method", *(f"{length} tokens" for length in lengths)], lines, frozenset({"method"}))


def _cell(row: LengthRow | None) -> str:
    if row is None:
        return "-"
    speed, steps = (None if value is None else f"{value:.2f}" for value in (row.speedup, row.tokens_per_step))
    return f"{'-' if speed is None else f'{speed}×'} at {steps or '-'}"
