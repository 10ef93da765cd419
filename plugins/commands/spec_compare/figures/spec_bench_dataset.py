"""The figures of Spec-Bench (2401.07851), computed as its ``speed.py`` computes them from answer files.

They differ from a row's own: rates include prefill and are means of questions, and their speedup is a ratio of means.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from spec_compare.records.record import Record

NAMES = ("mean_accepted_tokens", "tokens_per_second", "speedup")


def figures(own: list[Record], plain: list[Record], passed: bool) -> dict[str, Any]:
    """The three figures of one contender.

    mean_accepted_tokens: tokens per step, over all steps. tokens_per_second: mean over questions of tokens by seconds,
    prefill included. speedup: over plain decoding's. Both are means over repeats. passed: whether speeds may be shown.
    """
    rates, base = (mean_rates(records) if passed else {} for records in (own, plain))
    ratios = [rate / base[repeat] for repeat, rate in rates.items() if base.get(repeat)]
    return dict(zip(NAMES, (mean_accepted_tokens(own), _mean(rates.values()), _mean(ratios)), strict=True))


def mean_accepted_tokens(records: list[Record]) -> float | None:
    steps = sum(record.draft_statistics.steps for record in records)
    return sum(record.draft_statistics.emitted for record in records) / steps if steps else None


def mean_rates(records: Iterable[Record]) -> dict[int, float]:
    """{repeat: mean over questions of their tokens by their seconds}; the turns of a question count together."""
    totals: dict[int, dict[str, tuple[int, float]]] = {}
    for record in records:
        questions = totals.setdefault(record.repeat, {})
        tokens, seconds = questions.get(record.prompt, (0, 0.0))
        questions[record.prompt] = tokens + record.token_count, seconds + record.whole_seconds
    rates = {repeat: [n / s for n, s in questions.values() if s > 0] for repeat, questions in totals.items()}
    return {repeat: statistics.fmean(values) for repeat, values in rates.items() if values}


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return statistics.fmean(listed) if listed else None
