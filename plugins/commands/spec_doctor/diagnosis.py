"""Which reading of a head is right, and which usual cause is named for one that accepts next to nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import attrs

from spec_core import Target
from spec_core.errors import SpecError
from spec_doctor.acceptance import Acceptance, Texts, measure_acceptance

SHORT, SHORT_DRAFT = 12, 3
"""Tokens and drafts of a text by which readings are compared."""
BETTER, SURE, LEAST = 1.25, 4.0, 0.1
"""A reading is better with this many times the accepted tokens, this many standard errors apart, and at least this
share of first tokens accepted."""
WEAK = 0.25
"""Share of first tokens below which single layers are tried too."""
SECONDS = 10.0
"""Time for single layers."""


@attrs.frozen
class Tried:
    """A reading, None: that of the dialect, and what it accepted; error: why it could not be tried."""

    reading: Any
    acceptance: Acceptance | None
    error: str = ""

    @property
    def name(self) -> str:
        return "as its dialect says" if self.reading is None else self.reading.name


@attrs.frozen
class Diagnosis:
    """tried: readings, that of the dialect first. best: the one to use. cause: a usual one that the best explains, or
    None."""

    tried: list[Tried]
    best: Tried
    cause: str | None


def diagnose(target: Target, file: Any, prompts: Sequence[Any], longest: int, tokens: int) -> Diagnosis:
    """Try every reading that a file allows. Raises SpecError if the dialect's own cannot be tried."""
    short = Texts(prompts, SHORT, min(SHORT_DRAFT, longest))
    base = Tried(None, measure_acceptance(target, file, short))
    tried = [base, *(_try(target, file, reading, short) for reading in file.readings(target))]
    found = _best(base, tried)
    if found is base and base.acceptance.first < WEAK:
        layers = _search_layers(target, file, base, short)
        tried += layers
        found = _best(base, [*tried, *layers])
    whole = Texts(prompts, tokens, longest)
    tried[0] = whole_base = attrs.evolve(base, acceptance=measure_acceptance(target, file, whole))
    if found is base:
        return Diagnosis(tried, whole_base, None)
    best = attrs.evolve(found, acceptance=measure_acceptance(target, file.read_as(found.reading.changes), whole))
    tried[tried.index(found)] = best
    return Diagnosis(tried, best, found.reading.cause)


def _try(target: Target, file: Any, reading: Any, texts: Texts) -> Tried:
    """Try one reading. One that gives no head, such as two tokens of one row, is noted with its error."""
    try:
        return Tried(reading, measure_acceptance(target, file.read_as(reading.changes), texts))
    except SpecError as error:
        return Tried(reading, None, error.reason.splitlines()[0])


def _search_layers(target: Target, file: Any, base: Tried, texts: Texts) -> list[Tried]:
    """Try other hidden states, one after the other, and go on from the best while it improves."""
    ends_at, current, seen = perf_counter() + SECONDS, file, base
    tried: list[Tried] = []
    make: Callable[[Any, Any], Any] = lambda reading, before: attrs.evolve(reading, changes={**before, **reading.changes})
    changes: dict[str, Any] = {}
    while perf_counter() < ends_at:
        level: list[Tried] = []
        for reading in current.readings(target, others=True):
            if perf_counter() < ends_at:
                level.append(_try(target, file, make(reading, changes), texts))
        step = max(level, key=_score, default=seen)
        if _score(step) <= _score(seen) * 1.05:
            break
        tried.append(step)
        seen, changes = step, dict(step.reading.changes)
        current = file.read_as(changes)
    return tried


def _score(tried: Tried) -> float:
    return -1.0 if tried.acceptance is None else tried.acceptance.length


def _best(base: Tried, tried: Sequence[Tried]) -> Tried:
    """The best reading if it is surely better than the dialect's, else the dialect's."""
    best = max(tried, key=_score)
    return best if is_better(best, base) else base


def is_better(one: Tried, other: Tried) -> bool:
    """Whether a reading accepts so much more than another that chance does not explain it."""
    if one.acceptance is None or other.acceptance is None or one is other:
        return False
    a, b = one.acceptance, other.acceptance
    if a.first < LEAST or a.length < BETTER * b.length:
        return False
    n, m = a.tested[0], b.tested[0]
    share = (a.accepted[0] + b.accepted[0]) / (n + m)
    error = math.sqrt(max(share * (1 - share), 1e-9) * (1 / n + 1 / m))
    return a.first - b.first >= SURE * error
