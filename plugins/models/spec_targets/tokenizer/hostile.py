"""Tokenizers of strangers: failures of the library, which panics, and steps that make a text much longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spec_core.errors import UsageError

GROWTH_MAX = 64
"""Characters that the normaliser may make of one: published ones replace a space by one other character."""
SHOWN_MAX = 120


@contextmanager
def refuse_failures(message: str, hint: str) -> Iterator[None]:
    """Raise UsageError for whatever fails inside; a panic of Rust code is no Exception."""
    try:
        yield
    except UsageError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:SHOWN_MAX]
        raise UsageError(f"{message}: {reason or type(error).__name__}", hint=hint) from None


def check_growth(raw: Mapping[str, Any], where: str) -> None:
    """Raise UsageError for a tokenizer.json whose normaliser can make a text more than GROWTH_MAX times as long."""
    if growth_of(raw.get("normalizer"), 1) > GROWTH_MAX:
        raise UsageError(
            f"{where}: its normaliser makes more than {GROWTH_MAX} characters of one",
            hint="the file is damaged or hostile; get it again from its source",
        )


def growth_of(step: Any, before: int) -> int:
    """The most characters that become of one, which earlier steps made ``before`` of."""
    if not isinstance(step, Mapping):
        return before
    for inner in step["normalizers"] if isinstance(step.get("normalizers"), list) else ():
        before = growth_of(inner, before)
    if isinstance(text := step.get("prepend"), str):
        before += len(text)
    if isinstance(text := step.get("content"), str) and text:
        pattern = step.get("pattern")
        written = pattern.get("String") if isinstance(pattern, Mapping) else None
        before *= max(1, -(-len(text) // len(written))) if isinstance(written, str) and written else 1 + len(text)
    return before
