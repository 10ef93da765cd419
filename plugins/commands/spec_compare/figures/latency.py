"""Times that a user notices, and what a contender needs of the machine: percentiles, throughput, memory, energy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spec_compare.records.record import Lap

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def figures(laps: Sequence[Lap], passed: bool) -> dict[str, Any]:
    """Fields of a row. passed: whether its texts may show a speed; without it no time is returned."""
    records = [record for lap in laps for record in lap.records]
    tokens = sum(record.token_count for record in records)
    seconds, joules = sum(lap.seconds for lap in laps), [lap.joules for lap in laps if lap.joules is not None]
    used = {
        "peak_bytes": _max(lap.peak_bytes for lap in laps),
        "device_peak_bytes": _max(lap.device_peak_bytes for lap in laps),
    }
    if not passed:
        return used
    gaps = [s for r in records for s, emitted in zip(r.steps.seconds, r.steps.emitted, strict=True) if emitted]
    gaps += [s for r in records if r.served is not None for s in r.served.gaps]
    return used | {
        "machine_rate": tokens / seconds if seconds else None,
        "first_token": percentiles([record.first_seconds for record in records]),
        "between_tokens": percentiles(gaps),
        "joules_per_token": sum(joules) / tokens if len(joules) == len(laps) and tokens else None,
    }


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Percentiles by name; empty without values. Linear between neighbours, as numpy's default."""
    ordered = sorted(values)
    return {name: _at(ordered, share) for name, share in SHARES.items()} if ordered else {}


def _at(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _max(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)
