"""From records to rows: no speed without equality, pooled and per-prompt means, intervals over prompts."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterable

import attrs

from spec_compare.measure import Record

PLAIN = "plain"
RESAMPLES = 1000
ALL = "all"


@attrs.frozen
class Row:
    """One contender on one family. None where there is nothing to say, or where the equality gate failed.

    speedup: decode tokens/s over plain's on the same prompts; low and high: 90 % bootstrap interval over prompts.
    whole: the same with prefill. tau_pooled and tau_macro: tokens per step. lengths: by position from 1.
    """

    contender: str
    family: str
    prompts: int
    tokens: int
    identical: int
    rate: float | None
    speedup: float | None
    low: float | None
    high: float | None
    whole: float | None
    tau_pooled: float | None
    tau_macro: float | None
    draft_acceptance: float | None
    mean_draft_length: float | None
    marginal: list[float]
    conditional: list[float]
    first_seconds: float
    lossy: str | None = None


def rows(records: Iterable[Record], lossy: dict[str, str]) -> list[Row]:
    """A row per contender and family, and one over all."""
    table: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        table[record.contender, record.family].append(record)
        table[record.contender, ALL].append(record)
    families = list(dict.fromkeys(family for _, family in table))
    families.sort(key=lambda f: f == ALL)
    contenders = list(dict.fromkeys(name for name, _ in table))
    return [row(name, f, table[name, f], table[PLAIN, f], lossy.get(name)) for f in families for name in contenders]


def row(name: str, family: str, mine: list[Record], plain: list[Record], lossy: str | None) -> Row:
    truth = {r.prompt: r.tokens for r in plain}
    equal = {r.prompt for r in mine} - {r.prompt for r in mine if r.tokens != truth[r.prompt]}
    prompts = {r.prompt for r in mine}
    shown = len(equal) == len(prompts) or lossy is not None
    pairs = _pairs(mine, plain)
    low, high = _interval(pairs) if shown and name != PLAIN else (None, None)
    steps = [s for r in mine for s in r.steps]
    drafts = [s for s in steps if s[0]]
    return Row(
        contender=name,
        family=family,
        prompts=len(prompts),
        tokens=sum(len(r.tokens) for r in mine),
        identical=len(equal),
        rate=_rate(mine) if shown else None,
        speedup=_ratio(_rate(mine), _rate(plain)) if shown else None,
        low=low,
        high=high,
        whole=_ratio(_rate(mine, whole=True), _rate(plain, whole=True)) if shown else None,
        tau_pooled=_ratio(sum(s[2] for s in steps), len(steps)),
        tau_macro=_mean([sum(s[2] for s in r.steps) / len(r.steps) for r in mine if r.steps]),
        draft_acceptance=_ratio(sum(s[1] for s in drafts), sum(s[0] for s in drafts)),
        mean_draft_length=_ratio(sum(s[0] for s in drafts), len(drafts)),
        marginal=_by_position(drafts, conditional=False),
        conditional=_by_position(drafts, conditional=True),
        first_seconds=statistics.median(r.first_seconds for r in mine),
        lossy=lossy,
    )


def _rate(records: list[Record], whole: bool = False) -> float | None:
    """Tokens per second: decode only, or with prefill and the first token."""
    tokens = sum(len(r.tokens) if whole else r.decode_tokens for r in records)
    seconds = sum(r.decode_seconds + (r.first_seconds if whole else 0) for r in records)
    return _ratio(tokens, seconds)


Pair = tuple[float, float, float, float]


def _pairs(mine: list[Record], plain: list[Record]) -> list[Pair]:
    """(tokens, seconds) of both sides, per prompt over all repeats."""
    sums: dict[str, list[float]] = {}
    for side, records in ((0, mine), (2, plain)):
        for r in records:
            entry = sums.setdefault(r.prompt, [0.0] * 4)
            entry[side] += r.decode_tokens
            entry[side + 1] += r.decode_seconds
    return [tuple(entry) for entry in sums.values()]


def _interval(pairs: list[Pair]) -> tuple[float | None, float | None]:
    rng = random.Random(0)
    ratios = []
    for _ in range(RESAMPLES):
        sample = rng.choices(pairs, k=len(pairs))
        a, b, c, d = (sum(column) for column in zip(*sample, strict=True))
        if b and c and d:
            ratios.append((a / b) / (c / d))
    if not ratios:
        return None, None
    ratios.sort()
    return ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]


def _by_position(drafts: list[tuple[int, int, int]], conditional: bool) -> list[float]:
    """Accepted at position i over the drafts that reach i; conditional: of those in which i - 1 was accepted."""
    longest = max((d[0] for d in drafts), default=0)
    rates = []
    for i in range(1, longest + 1):
        reached = [d for d in drafts if d[0] >= i and (not conditional or d[1] >= i - 1)]
        if reached:
            rates.append(sum(d[1] >= i for d in reached) / len(reached))
    return rates


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
