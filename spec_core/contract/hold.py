"""Limits that a controller set for the steps that are drafted like the one in which it was called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spec_core.contract.spent import StepRecord


class Hold(NamedTuple):
    """The arguments of ``step.hold``. joining: False where the step had more than one sequence."""

    steps: int
    loss: float
    per_token: float
    without: frozenset[str]
    joining: bool
    of_forward: Mapping[int, float]
    rest: int = 0
    unlisted: int | None = None

    def loss_of(self, spent: StepRecord) -> float:
        """Seconds that a step took beyond what its tokens were worth, of all its sequences on average.

        At the speed of ``per_token``: on a machine that has become faster, each of its seconds counts more.
        """
        tokens, share = spent.tokens / spent.sequences, self.of_forward.get(spent.rows)
        if share is None:
            return spent.total_seconds - self.per_token * tokens
        now = share * spent.seconds["verify"]
        lost = spent.total_seconds - now * tokens
        return lost * self.per_token / now if self.per_token and now else lost
