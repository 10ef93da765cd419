"""Warnings about the times of a comparison: laps that scatter, impossible speedups, a busy machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spec_commands.machine import Load
from spec_commands.timing_warnings import QUIET, TimingWarning, of_load, slow_count

from spec_compare.figures.summary import Row
from spec_compare.records.record import Lap

NO_INTERVAL = 1.05
"""Factor by which the speedup of a single prompt, which has no interval, may exceed its bound: the same work repeats
within a few per cent."""


KINDS = {
    "scatter": "the laps of {} contenders scatter",
    "bound": "{} speedups are larger than they can be",
    "load": "other programs were busy",
    "server": "{} servers count or send in another way",
}


def found_in(laps: list[Lap], rows: list[Row], load: Load, device: str) -> list[TimingWarning]:
    """All warnings: by contender, then of the machine."""
    names = dict.fromkeys(lap.contender for lap in laps)
    warnings = [c for name in names for c in scatter_warnings([lap for lap in laps if lap.contender == name], device)]
    if all(len(lap.records) == 1 and lap.records[0].served is None for lap in laps):
        for name in names:
            own_rows = [row for row in rows if row.contender == name]
            warnings += warn_about_bounds(own_rows) or beyond_costs(own_rows)
    return warnings + of_load(load)


SINGLE = 3
"""Max warnings of a kind that have a line each."""
ABOUT = {
    "scatter": "the laps of {} contenders scatter",
    "bound": "the speedups of {} contenders are larger than they can be",
    "load": "{} warnings of the load",
    "server": "{} servers count or send in another way",
}


def fold_warnings(warnings: Iterable[TimingWarning]) -> list[TimingWarning]:
    """The warnings, with one in place of all of a kind that concerns many contenders: their number and an example."""
    by_kind: dict[str, list[TimingWarning]] = {}
    for warning in warnings:
        by_kind.setdefault(warning.kind, []).append(warning)
    return [one for kind in by_kind.values() for one in (kind if len(kind) <= SINGLE else [_fold(kind)])]


def _fold(kind: list[TimingWarning]) -> TimingWarning:
    about = ABOUT[kind[0].kind].format(len(kind))
    return TimingWarning(kind[0].kind, None, f"{about}, such as {kind[0].text}; --wide and the report name each")


def scatter_warnings(laps: list[Lap], device: str) -> list[TimingWarning]:
    """Warnings about laps of one contender."""
    slow = slowdowns(laps, device)
    count = slow_count(slow)
    if not count:
        return []
    name, much = laps[0].contender, f"{count} of {len(laps)} laps took up to {max(slow):.1f} times as long as"
    message = f"{name}: {much} the fastest repeat of the same prompts, or as their own CPU time"
    return [TimingWarning("scatter", name, f"{message}: {QUIET}, with more --repeats")]


def slowdowns(laps: list[Lap], device: str) -> list[float]:
    """Time of each lap over that of the fastest repeat, or over its processor time if that ratio is larger.

    Processor time is used on a CPU only: a process that waits for another device does not spend it.
    """
    fastest = {key: min(lap.seconds for lap in same) for key, same in _repeats(laps).items()}
    return [max(_ratio(lap.seconds, fastest[_work(lap)]), _waiting_ratio(lap, device)) for lap in laps]


def _repeats(laps: Iterable[Lap]) -> dict[tuple[str, ...], list[Lap]]:
    groups: dict[tuple[str, ...], list[Lap]] = {}
    for lap in laps:
        groups.setdefault(_work(lap), []).append(lap)
    return groups


def _work(lap: Lap) -> tuple[str, ...]:
    """Key of the repeats of a lap: laps of one contender on the same prompts do the same work."""
    return tuple(record.prompt for record in lap.records)


def _waiting_ratio(lap: Lap, device: str) -> float:
    return _ratio(lap.seconds, lap.cpu_seconds) if device == "cpu" else 1.0


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else 1.0


def warn_about_bounds(rows: list[Row]) -> list[TimingWarning]:
    """Warnings about rows of one contender whose prompts ran alone: a step takes at least as long as a plain step."""
    beyond = [row for row in rows if _exceeds(row)]
    if not beyond:
        return []
    worst = max(beyond, key=lambda row: row.efficiency or 0.0)
    message = f"{worst.contender}: speedup {worst.speedup:.2f} at {worst.tokens_per_step:.2f} tokens per step"
    families = ", ".join(row.family for row in beyond)
    text = f"{message} is impossible ({families}): plain decoding was disturbed; {QUIET}"
    return [TimingWarning("bound", worst.contender, text)]


def beyond_costs(rows: list[Row]) -> list[TimingWarning]:
    """Warnings about rows whose interval is above what their acceptance allows at the measured costs of steps."""
    beyond = [row for row in rows if row.acceptance_bound is not None and _low(row) > row.acceptance_bound]
    if not beyond:
        return []
    worst = max(beyond, key=lambda row: row.roof_fraction or 0.0)
    message = (
        f"{worst.contender}: speedup {worst.speedup:.2f} exceeds {worst.acceptance_bound:.2f}, its acceptance bound"
    )
    families = ", ".join(row.family for row in beyond)
    text = f"{message} ({families}): plain decoding or the costs of steps were disturbed; {QUIET}"
    return [TimingWarning("bound", worst.contender, text)]


def _low(row: Row) -> float:
    """The lower end of the interval of a speedup; of a single prompt, what it may be at least."""
    if row.speedup is None:
        return 0.0
    return row.speedup / NO_INTERVAL if row.low is None else row.low


def _exceeds(row: Row) -> bool:
    """Whether the interval is above the bound: tokens per step, since a step takes at least as long as a plain step."""
    return row.tokens_per_step is not None and _low(row) > row.tokens_per_step


def warning_counts(warnings: Iterable[TimingWarning]) -> str:
    """One line on all warnings: how many of each kind."""
    counts = Counter(warning.kind for warning in warnings)
    return "; ".join(KINDS[kind].format(count) for kind, count in counts.items())


def describe_unreliability(warnings: Iterable[TimingWarning]) -> str:
    """One line if times are unreliable, which goes wherever the figures go; else empty."""
    counts = warning_counts(warnings)
    return f"Times are unreliable: {counts}." if counts else ""
