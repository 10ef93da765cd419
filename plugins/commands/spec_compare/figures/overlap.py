"""Whether the intervals of one speedup, measured several times, overlap: then the measurements do not contradict."""

from __future__ import annotations

from collections.abc import Iterable

from spec_compare.figures.summary import Row


def intervals_overlap(rows: Iterable[Row]) -> bool | None:
    """Whether the intervals of all rows have a value in common; None if one of them has no interval."""
    ends = [(row.low, row.high) for row in rows]
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    if len(lows) < len(ends) or len(highs) < len(ends):
        return None
    return max(lows) <= min(highs)


def interval_text(row: Row) -> str:
    """``1.10-1.36``; ``-`` without an interval."""
    return "-" if row.low is None or row.high is None else f"{row.low:.2f}-{row.high:.2f}"
