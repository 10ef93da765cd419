"""Summarises laps as rows: no speed without equality, pooled and per-prompt means, intervals over prompts."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from spec_costs.curve import Curves

from spec_compare.figures import latency, spec_bench_dataset
from spec_compare.figures.acceptance import AcceptanceLengths, acceptance_histogram, acceptance_lengths, uncut_length
from spec_compare.figures.bounds import bounds
from spec_compare.records.record import Lap, Record
from spec_core.toolkit import DraftStatistics

ALL = "all"
RESAMPLES = 1000
INTERVAL = 0.9
INTERVAL_PROMPTS = 5
"""Min prompts of an interval: a bootstrap over fewer is too narrow."""
COUNTED = (
    "steps", "accepted_per_step", "mean_acceptance_length", "draft_acceptance", "mean_draft_length", "marginal",
    "conditional", "drafted_per_pos", "tested_per_pos", "accepted_per_pos",
)  # fmt: skip
"""Statistics of the core that a row has under the same names."""


@attrs.frozen
class Row:
    """One contender on one family. Fields are None if undefined, or if the equality gate failed."""

    contender: str
    family: str
    prompts: int
    tokens: int
    identical: int
    """Prompts whose tokens are plain's in every repeat."""
    label: str | None
    """Why equality with plain is not required, or None."""
    rate: float | None
    """Decode tokens/s of a sequence."""
    speedup: float | None
    """Rate over plain's on the same prompts."""
    low: float | None
    """Lower end of the bootstrap interval of ``speedup`` over prompts."""
    high: float | None
    """Upper end of that interval."""
    middle: float | None
    """Median of the prompts' own speedups."""
    whole: float | None
    """The ratio with prefill, all sequences together."""
    cpu_rate: float | None
    """Decode tokens per second of CPU time."""
    cpu_speedup: float | None
    """Speedup by CPU time."""
    tokens_per_step: float | None
    efficiency: float | None
    """speedup / tokens_per_step."""
    overhead: float | None
    """1 / efficiency - 1."""
    first_seconds: float
    split: dict[str, float]
    """Shares of a step's time."""
    forwards: dict[str, float]
    """Forwards per generated token, by who made them."""
    acceptance_length: AcceptanceLengths
    acceptance_histogram: list[int]
    """Drafts by their number of accepted tokens."""
    steps: int
    mean_acceptance_length: float | None
    uncut_acceptance_length: float | None
    """mean_acceptance_length with accepted tokens after the end of a text."""
    accepted_per_step: float | None
    draft_acceptance: float | None
    mean_draft_length: float | None
    marginal: list[float]
    conditional: list[float]
    drafted_per_pos: list[int]
    tested_per_pos: list[int]
    accepted_per_pos: list[int]
    machine_rate: float | None = None
    """Tokens/s of all sequences together, prefill included."""
    first_token: dict[str, float] = attrs.field(factory=dict)
    """Percentiles of the seconds until the first token."""
    between_tokens: dict[str, float] = attrs.field(factory=dict)
    """Percentiles of the seconds between tokens."""
    peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    joules_per_token: float | None = None
    hardware_bound: float | None = None
    """Bound as in ``Bounds``; so are the fields up to ``acceptance_bound``."""
    hardware_drafts: int | None = None
    drafter_bound: float | None = None
    acceptance_bound: float | None = None
    roof_fraction: float | None = None
    """speedup / acceptance_bound."""
    spec_bench: dict[str, Any] = attrs.field(factory=dict)
    worst_family: str | None = None
    """The family with the smallest speedup, in a row over several families; the fields below are its own."""
    worst_speedup: float | None = None
    worst_low: float | None = None
    worst_high: float | None = None


@attrs.frozen
class Cell:
    """One contender on one prompt; seconds are medians over the repeats. cpu_seconds: 0 if not measured."""

    tokens: int
    decode_tokens: int
    decode_seconds: float
    whole_seconds: float
    cpu_seconds: float = 0.0


Costs = Mapping[str, tuple[Curves, int]]
"""{contender: costs of its steps, and the longest draft that its run allows}."""


def rows(
    laps: Iterable[Lap], labels: Mapping[str, str], costs: Costs | None = None, level: float = INTERVAL
) -> list[Row]:
    """A row per contender and family, and one over all. costs: for the bounds of the speedups. level: of intervals."""
    laps = list(laps)
    families = [*(f for f in dict.fromkeys(lap.family for lap in laps) if f != ALL), ALL]
    contenders = list(dict.fromkeys(lap.contender for lap in laps))
    passed = passed_names(laps, labels)
    known = costs or {}
    listed = [
        row(laps, name, family, passed, labels.get(name), known.get(name), level)
        for family in families
        for name in contenders
    ]
    drafting = {name for name in contenders if baseline_of(laps, name) != name}
    return [
        _with_worst(one, listed) if one.family == ALL and len(families) > 2 and one.contender in drafting else one
        for one in listed
    ]


def passed_names(laps: list[Lap], labels: Mapping[str, str]) -> set[str]:
    """The contenders whose texts are as they must be."""
    names = dict.fromkeys(lap.contender for lap in laps)
    return {name for name in names if name in labels or not _differing(laps, name)}


def _with_worst(whole: Row, listed: Iterable[Row]) -> Row:
    """The row over all families, with the family of its smallest speedup."""
    parts = [row for row in listed if row.contender == whole.contender and row.family != ALL]
    timed = [row for row in parts if row.speedup is not None]
    if not timed:
        return whole
    worst = min(timed, key=lambda row: row.speedup or 0.0)
    return attrs.evolve(
        whole,
        worst_family=worst.family,
        worst_speedup=worst.speedup,
        worst_low=worst.low,
        worst_high=worst.high,
    )


def worst_first(rows: Iterable[Row]) -> list[str]:
    """The families, that of the smallest speedup first; all families together come last."""
    rows = list(rows)
    least = {
        family: min((row.speedup for row in rows if row.family == family and row.speedup is not None), default=math.inf)
        for family in dict.fromkeys(row.family for row in rows)
        if family != ALL
    }
    return [*sorted(least, key=lambda family: least[family]), *([ALL] if any(r.family == ALL for r in rows) else [])]


Text = tuple[str, str, int]
"""Baseline, prompt and turn of a text."""


def truth(laps: Iterable[Lap]) -> dict[Text, list[int]]:
    """The tokens of plain decoding, its first repeat."""
    return {text_of(r): r.content for lap in laps for r in lap.records if r.contender == r.baseline and r.repeat == 0}


def text_of(record: Record) -> Text:
    return record.baseline, record.prompt, record.turn


def baseline_of(laps: list[Lap], name: str) -> str:
    """The plain decoding that a contender is compared with."""
    return next(r.baseline for lap in laps if lap.contender == name for r in lap.records)


def _differing(laps: list[Lap], name: str) -> set[str]:
    """Prompts on which a contender's tokens are not plain's, in any turn and repeat."""
    plain = truth(laps)
    own_records = [r for lap in laps if lap.contender == name for r in lap.records]
    return {r.prompt for r in own_records if r.content != plain.get(text_of(r))}


def row(
    laps: list[Lap],
    name: str,
    family: str,
    passed: set[str],
    label: str | None,
    costs: tuple[Curves, int] | None = None,
    level: float = INTERVAL,
) -> Row:
    own_laps = laps_of(laps, name, family)
    records = [r for lap in own_laps for r in lap.records]
    cells = cells_of(records)
    draft_statistics = _pool(records)
    counted = draft_statistics.report()
    tau = counted["tokens_per_step"]
    baseline = baseline_of(laps, name)
    shown = {name, baseline} <= passed
    plain = [r for lap in laps_of(laps, baseline, family) for r in lap.records]
    speeds = speed(cells, cells_of(plain), level) if shown else NO_SPEED
    return Row(
        contender=name,
        family=family,
        prompts=len(cells),
        tokens=sum(c.tokens for c in cells.values()),
        identical=len(cells.keys() - _differing(laps, name)),
        label=label,
        **speeds,
        tokens_per_step=tau,
        acceptance_length=acceptance_lengths(records),
        acceptance_histogram=acceptance_histogram(records),
        uncut_acceptance_length=uncut_length(records),
        efficiency=_ratio(speeds["speedup"], tau),
        overhead=tau / speeds["speedup"] - 1 if tau and speeds["speedup"] else None,
        first_seconds=statistics.median(r.first_seconds for r in records),
        split=_shares(_sums(lap.split for lap in own_laps)),
        forwards={n: v / (draft_statistics.emitted or 1) for n, v in _sums(lap.forwards for lap in own_laps).items()},
        **{key: counted[key] for key in COUNTED},
        spec_bench=spec_bench_dataset.figures(records, plain, shown),
        **latency.figures(own_laps, speeds["rate"] is not None),
        **_bounds(own_laps, laps_of(laps, baseline, family), draft_statistics, costs, speeds["speedup"]),
    )


def _bounds(
    own_laps: list[Lap],
    plain: list[Lap],
    draft_statistics: DraftStatistics,
    costs: tuple[Curves, int] | None,
    speedup: float | None,
) -> dict[str, Any]:
    """The fields of a row about bounds; the bounds do not depend on the equality of the texts."""
    if costs is None:
        return {}
    limits = bounds(own_laps, plain, draft_statistics, *costs)
    return {
        "hardware_bound": limits.hardware,
        "hardware_drafts": limits.drafts,
        "drafter_bound": limits.drafter,
        "acceptance_bound": limits.acceptance,
        "roof_fraction": _ratio(speedup, limits.acceptance),
    }


TIMED = ("rate", "speedup", "low", "high", "middle", "whole", "cpu_rate", "cpu_speedup")
NO_SPEED: dict[str, Any] = dict.fromkeys(TIMED)


def speed(own_cells: dict[str, Cell], plain: dict[str, Cell], level: float = INTERVAL) -> dict[str, Any]:
    """All timing figures of one contender against plain on the same prompts."""
    pairs = [(own_cells[prompt], plain[prompt]) for prompt in own_cells if prompt in plain]
    low, high = interval(pairs, level)
    own = sorted(s for pair in pairs if (s := _speedup([pair])) is not None)
    return {
        "rate": _rate([a for a, _ in pairs]),
        "speedup": _speedup(pairs),
        "low": low,
        "high": high,
        "middle": statistics.median(own) if own else None,
        "whole": _ratio(_whole([a for a, _ in pairs]), _whole([b for _, b in pairs])),
        "cpu_rate": _cpu_rate([a for a, _ in pairs]),
        "cpu_speedup": _ratio(_cpu_rate([a for a, _ in pairs]), _cpu_rate([b for _, b in pairs])),
    }


Pairs = list[tuple[Cell, Cell]]


def _speedup(pairs: Pairs) -> float | None:
    return _ratio(_rate([a for a, _ in pairs]), _rate([b for _, b in pairs]))


def _rate(cells: list[Cell]) -> float | None:
    return _ratio(sum(c.decode_tokens for c in cells), sum(c.decode_seconds for c in cells))


def _cpu_rate(cells: list[Cell]) -> float | None:
    return _ratio(sum(c.decode_tokens for c in cells), sum(c.cpu_seconds for c in cells))


def _whole(cells: list[Cell]) -> float | None:
    return _ratio(sum(c.tokens for c in cells), sum(c.whole_seconds for c in cells))


def interval(pairs: Pairs, level: float) -> tuple[float | None, float | None]:
    """Bootstrap interval over prompts at a level; None for fewer than INTERVAL_PROMPTS."""
    if len(pairs) < INTERVAL_PROMPTS:
        return None, None
    rng = random.Random(0)
    drawn = (_speedup(rng.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    ratios = sorted(r for r in drawn if r is not None)
    if not ratios:
        return None, None
    tail = int(len(ratios) * (1 - level) / 2)
    return ratios[tail], ratios[-1 - tail]


def laps_of(laps: list[Lap], name: str, family: str) -> list[Lap]:
    return [lap for lap in laps if lap.contender == name and family in (lap.family, ALL)]


def cells_of(records: list[Record]) -> dict[str, Cell]:
    """Cells by prompt; the turns of a conversation count together."""
    by_prompt: dict[str, dict[int, list[Record]]] = {}
    for record in records:
        by_prompt.setdefault(record.prompt, {}).setdefault(record.repeat, []).append(record)
    return {prompt: _cell(list(repeats.values())) for prompt, repeats in by_prompt.items()}


def _cell(repeats: list[list[Record]]) -> Cell:
    """repeats: for each of them, the records of all turns."""

    def middle(name: str) -> float:
        return statistics.median(sum(getattr(turn, name) for turn in turns) for turns in repeats)

    return Cell(
        tokens=sum(turn.token_count for turn in repeats[0]),
        decode_tokens=sum(turn.decode_tokens for turn in repeats[0]),
        decode_seconds=middle("decode_seconds"),
        whole_seconds=middle("whole_seconds"),
        cpu_seconds=middle("cpu_seconds"),
    )


def _pool(records: list[Record]) -> DraftStatistics:
    draft_statistics = DraftStatistics()
    for record in records:
        draft_statistics.merge(record.draft_statistics)
    return draft_statistics


def _sums(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for table in tables:
        for name, value in table.items():
            total[name] = total.get(name, 0) + value
    return total


def _shares(table: dict[str, float]) -> dict[str, float]:
    whole = sum(table.values())
    return {name: value / whole for name, value in table.items()} if whole else {}


def _ratio(a: Any, b: Any) -> float | None:
    return a / b if a is not None and b else None
