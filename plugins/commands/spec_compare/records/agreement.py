"""Whether the parts of results agree: names that refer to each other, counts, and numbers within reason."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from spec_compare.records.convert import LapFacts
from spec_compare.records.header import Header
from spec_compare.records.record import Record, ServedText
from spec_core.errors import quote_value

LARGEST = (1 << 64) - 1
"""Max absolute value of a whole number: seeds have 64 bits."""
MAX_RESAMPLES, MAX_REPEATS = 1_000_000, 1_000_000


def check_values(value: Any) -> None:
    """Raise ValueError for a half of a surrogate in a text or a name, and for a whole number beyond 64 bits."""
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, int):
        if abs(value) > LARGEST:
            raise ValueError(f"a finite number of 64 bits expected, got {quote_value(value)}")
    elif isinstance(value, list):
        for item in value:
            check_values(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            check_text(name)
            check_values(item)


def check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"{ascii(text)[:40]} has a half of a surrogate, which is no character")


def check_header(header: Header) -> None:
    """Raise ValueError unless contenders and models refer to each other, and counts are possible."""
    names = [contender.name for contender in header.contenders]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"the contenders are {quote_value(names)}: different names are needed")
    for contender in header.contenders:
        if not 0 <= contender.target < len(header.targets):
            raise ValueError(
                f"contender {quote_value(contender.name)} has the model {contender.target} of {len(header.targets)}"
            )
        if contender.baseline not in names:
            raise ValueError(
                f"contender {quote_value(contender.name)} is compared with "
                f"{quote_value(contender.baseline)}, which is none"
            )
    check_between("repeats", header.repeats, 1, MAX_REPEATS)
    check_between("batch", header.batch, 1, MAX_REPEATS)
    check_between("processors", header.processors, 1, MAX_REPEATS)
    check_between("resamples", header.resamples, 1, MAX_RESAMPLES)
    check_between("laps", header.laps, 0, LARGEST)
    if not 0 < header.interval < 1:
        raise ValueError(f"interval = {header.interval} must be between 0 and 1")
    check_date(header.date)


def check_between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} = {quote_value(value)} must be {low} to {high}")


def check_date(date: str) -> None:
    try:
        datetime.fromisoformat(date).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"the date {quote_value(date)} is none") from error


def check_record(header: Header, facts: LapFacts, record: Record) -> None:
    """Raise ValueError unless a record belongs to the comparison and to its lap."""
    contender = next((c for c in header.contenders if c.name == record.contender), None)
    if contender is None:
        raise ValueError(f"no contender is named {quote_value(record.contender)}")
    if record.baseline != contender.baseline:
        raise ValueError(
            f"{quote_value(record.contender)} is compared with {quote_value(record.baseline)}, "
            f"in the header with another"
        )
    if record.prompt not in facts.prompts:
        raise ValueError(f"the lap has no prompt {quote_value(record.prompt)}")
    check_between("repeat", record.repeat, 0, header.repeats - 1)
    check_between("turn", record.turn, 0, LARGEST)
    check_between("prompt_tokens", record.prompt_tokens, 0, LARGEST)
    check_between("reused", record.reused, 0, record.prompt_tokens)
    check_no_less("tokens", record.tokens, 0)
    if record.served is not None:
        _check_served(record.served)
    check_no_less("emitted", record.steps.emitted, 0)
    check_no_less("seconds", record.steps.seconds, 0)
    times = (record.first_seconds, record.decode_seconds, record.whole_seconds, record.cpu_seconds)
    check_no_less("seconds", times, 0)
    check_no_less("seconds", (facts.seconds, facts.cpu_seconds, *facts.split.values()), 0)


def _check_served(served: ServedText) -> None:
    """Raise ValueError for counts that cannot be."""
    counts = {name: getattr(served, name) for name in ("tokens", "drafts", "drafted", "accepted")}
    for name, count in counts.items():
        check_between(name, count or 0, 0, LARGEST)
    if (served.accepted or 0) > (served.drafted or 0):
        raise ValueError(
            f"{quote_value(served.accepted)} of {quote_value(served.drafted)} drafted tokens were accepted"
        )
    check_no_less("seconds", served.gaps, 0)


def check_no_less(name: str, values: Iterable[float], low: float) -> None:
    if (least := min(values, default=low)) < low:
        raise ValueError(f"{name} has {quote_value(least)}: at least {low} is needed")
