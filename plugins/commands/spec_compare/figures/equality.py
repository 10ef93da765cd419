"""Equality by type: whether texts equal plain decoding's in each dtype and cache type, and where they first differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from spec_compare.figures.difference import Difference
from spec_compare.figures.summary import ALL, Row, truth
from spec_compare.records.header import ContenderFacts, Header
from spec_compare.records.record import Lap

CACHE = "cache_dtype"


@attrs.frozen
class EqualityRow:
    """One contender in one type of numbers.

    identical: prompts whose texts equal plain decoding's of the same types. like_first: texts of plain decoding that
    equal the comparison's first plain decoding; None for methods. position, gap: of the earliest
    difference, None without one. label: why equality is not required, or None.
    """

    contender: str
    dtype: str
    cache: str
    prompts: int
    identical: int
    like_first: int | None
    position: int | None
    gap: float | None
    label: str | None


def equality(header: Header, laps: list[Lap], rows: Iterable[Row], differences: list[Difference]) -> list[EqualityRow]:
    """A row per contender, if the comparison has several types; else none."""
    facts = {c.name: c for c in header.contenders}
    if len({types_of(header, one) for one in facts.values()}) < 2:
        return []
    counts = equal_to_first(laps, header)
    return [
        _row(header, facts[row.contender], row, differences, counts.get(row.contender))
        for row in rows
        if row.family == ALL
    ]


def types_of(header: Header, facts: ContenderFacts) -> tuple[str, str]:
    """(dtype of the numbers, type of the cache)."""
    cache = facts.settings.get(CACHE)
    return header.targets[facts.target].dtype, str(cache.value) if cache is not None else ""


def _row(
    header: Header, facts: ContenderFacts, row: Row, differences: list[Difference], like_first: int | None
) -> EqualityRow:
    own = [one for one in differences if one.contender == row.contender]
    first = min(own, key=lambda one: one.position, default=None)
    position, gap = (None, None) if first is None else (first.position, first.gap)
    types = types_of(header, facts)
    return EqualityRow(row.contender, *types, row.prompts, row.identical, like_first, position, gap, row.label)


def equal_to_first(laps: Iterable[Lap], header: Header) -> Mapping[str, int]:
    """{plain decoding: texts that equal the first one's}."""
    texts = truth(laps)
    baselines = list(dict.fromkeys(c.baseline for c in header.contenders))
    first = {key[1:]: tokens for key, tokens in texts.items() if key[0] == baselines[0]}
    return {
        name: sum(tokens == first.get(key[1:]) for key, tokens in texts.items() if key[0] == name) for name in baselines
    }
