"""The continuation of a comparison after an interruption, and the dates in its files."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from spec_commands import machine
from spec_commands.http_client import hide_secrets

from spec_compare.records.header import Session


def new_session(laps: int) -> Session:
    """A continuation. laps: number of finished laps."""
    return Session(present_date(), command_line(), machine.moment().average, laps)


def command_line() -> list[str]:
    """The words of the command; an address has its scheme, host and port alone, as the rest of it may be secret."""
    return [hide_secrets(word) for word in sys.argv]


def present_date() -> str:
    """Date and time, UTC, in ISO's form."""
    return datetime.now(UTC).isoformat(timespec="seconds")
