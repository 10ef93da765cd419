"""What an audit says of each promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

Status = Literal["holds", "fails", "skipped"]
HOLDS: Status = "holds"
FAILS: Status = "fails"
SKIPPED: Status = "skipped"


@attrs.frozen
class Verdict:
    """One row of the table. power: what would have been found. requests: curl lines that show a fault."""

    promise: str
    status: Status
    detail: str
    power: str = ""
    requests: tuple[str, ...] = ()


@attrs.frozen
class Speed:
    """Time per token without drafts divided by that with drafts. low, high: 95 % interval of the median."""

    category: str
    at_once: int
    ratio: float
    low: float
    high: float
    rounds: int


@attrs.frozen
class Section:
    """The verdicts of one check."""

    title: str
    verdicts: tuple[Verdict, ...]


@attrs.frozen
class Result:
    """An audit. facts: what it depends on, and the floor. speeds: the slowest category first."""

    facts: dict[str, str]
    sections: tuple[Section, ...]
    speeds: tuple[Speed, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for section in self.sections for verdict in section.verdicts]

    def with_status(self, status: Status) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.status == status]


def share(part: int, whole: Sequence[object] | int) -> str:
    """``3 of 4``."""
    return f"{part} of {whole if isinstance(whole, int) else len(whole)}"
