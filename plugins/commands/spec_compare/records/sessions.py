"""The continuation of a comparison after an interruption, and the dates in its files."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from spec_commands import machine

from spec_compare.records.header import Session


def new_session(laps: int) -> Session:
    """A continuation. laps: number of finished laps."""
    return Session(present_date(), list(sys.argv), machine.moment().average, laps)


def present_date() -> str:
    """Date and time, UTC, in ISO's form."""
    return datetime.now(UTC).isoformat(timespec="seconds")
