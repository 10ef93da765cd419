"""Methods against each other: the ratio of two contenders' rates on the same prompts, with a paired interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import attrs

from spec_compare.figures.summary import ALL, INTERVAL, Row, cells_of, laps_of, speed
from spec_compare.records.record import Lap
from spec_core.errors import UsageError


@attrs.frozen
class Pair:
    """Rate of ``contender`` over that of ``other`` on their common prompts, at the same model and settings of the text.

    low, high: bootstrap interval over prompts, each drawn with the times of both; None below five prompts.
    """

    contender: str
    other: str
    prompts: int
    ratio: float
    low: float | None
    high: float | None

    @property
    def inverse(self) -> Pair:
        """The same pair, seen from the other contender."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Pair(self.other, self.contender, self.prompts, 1 / self.ratio, low, high)


def pairs(laps: list[Lap], rows: Iterable[Row], baselines: Mapping[str, str], level: float = INTERVAL) -> list[Pair]:
    """Every two drafting contenders with one plain decoding, whose texts are as they must be.

    baselines: {contender: the plain decoding it is compared with}.
    """
    timed = [row.contender for row in rows if row.family == ALL and row.speedup is not None]
    drafting = [name for name in timed if baselines.get(name, name) != name]
    cells = {name: cells_of([r for lap in laps_of(laps, name, ALL) for r in lap.records]) for name in drafting}
    return [
        Pair(a, b, len(cells[a].keys() & cells[b].keys()), figures["speedup"], figures["low"], figures["high"])
        for a, b in combinations(drafting, 2)
        if baselines[a] == baselines[b] and (figures := speed(cells[a], cells[b], level))["speedup"]
    ]


def both_ways(listed: Iterable[Pair]) -> Iterator[Pair]:
    """The pairs, each seen from both of its contenders."""
    for pair in listed:
        yield from (pair, pair.inverse)


def pairs_against(listed: Iterable[Pair], names: Mapping[str, str], name: str) -> list[Pair]:
    """The pairs whose other contender is called ``name``, whole or inside its facet. Raises UsageError without one.

    names: {contender: its name inside its facet}.
    """
    chosen = [pair for pair in both_ways(listed) if name in (pair.other, names.get(pair.other))]
    if not chosen:
        known = ", ".join(dict.fromkeys(names.values()))
        raise UsageError(f"--against {name!r} names no contender that can be compared", hint=f"there are {known}")
    return chosen
