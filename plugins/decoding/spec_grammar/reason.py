"""Messages of llguidance's errors, for a user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from spec_core.errors import NoTokenAllowed

SIMPLER = "simplify the grammar: fewer alternatives that begin alike, shorter repetitions"
REASON_MAX = 300
"""Characters of an error that are shown."""
INTERNAL = re.compile(r"<state>|<non-verbose/>|stack backtrace:|\n\s*0: ")
"""Beginning of the library's own state, or of the calls that led to a panic."""


def reason(error: str) -> str:
    """The message in one line, without internal state, calls and paths."""
    text = " ".join(INTERNAL.split(error)[0].split())
    return text if len(text) <= REASON_MAX else f"{text[: REASON_MAX - 3]}..."


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise NoTokenAllowed for a panic of the library, which is no Exception and would end the thread."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise NoTokenAllowed(f"the grammar cannot be followed: {reason(str(error))}", hint=SIMPLER) from None
