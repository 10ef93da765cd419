"""What a controller said of the steps that are drafted like one in which it was called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spec_core.contract.spent import Spent


class Hold(NamedTuple):
    """As of ``step.hold``. joining: False where the step had more than one sequence."""

    steps: int
    loss: float
    per_token: float
    without: frozenset[str]
    joining: bool
    of_forward: Mapping[int, float]

    def lost(self, spent: Spent) -> float:
        """Seconds that a step took beyond what its tokens were worth, of all its sequences on average."""
        share = self.of_forward.get(spent.rows)
        per_token = self.per_token if share is None else share * spent.seconds["verify"]
        return spent.whole - per_token * spent.tokens / spent.sequences
