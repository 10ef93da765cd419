"""What a step took, and what became of its drafts, for a controller."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import attrs


class DraftAttempt(NamedTuple):
    """What one method drafted for one sequence in a step.

    number: the request's. method: its name in the run. budget: longest path that it might have drafted.
    drafted: its tokens. depth: length of its longest path. accepted: tokens of a path that were accepted, before the
    cut at stop tokens and limits; None if it extended a draft whose end was rejected, so that nothing of it was tested.
    judged: the method's own chance of each token that was tested, the token before it being accepted, and whether it
    was accepted; None if it gives no chances.
    """

    number: int
    method: str
    budget: int
    drafted: int
    depth: int
    accepted: int | None
    judged: tuple[tuple[float, bool], ...] | None = None


@attrs.define
class StepRecord:
    """What a step took; not to be changed.

    Not frozen, as one is made in every step and that would take three times as long.

    number: the step's. total_seconds: seconds from its beginning to its end, without the time of observers.
    seconds: as in ``Step``. In a run with a controller on a CPU both are without the time in which other programs had
    the processor of its thread.
    sequences, rows: of its forward; the numbers are equal where each evaluated one token and no method drafted.
    tokens: that all its sequences emitted. depth: position of the first row of the longest sequence, None where rows
    of a prompt were evaluated.
    attempts: drafts in the order of sequences and methods. priced: as in ``Step``.
    plain: a plan was followed in which no method drafts, so that no draft hook was called.
    """

    number: int
    total_seconds: float
    seconds: Mapping[str, float]
    sequences: int = 0
    rows: int = 0
    tokens: int = 0
    depth: int | None = None
    attempts: tuple[DraftAttempt, ...] = ()
    priced: Collection[str] = frozenset()
    plain: bool = False
