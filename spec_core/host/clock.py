"""Time of an engine's steps, as controllers read it: from asking for drafts until what was verified has been told."""

from __future__ import annotations

from time import perf_counter

import attrs

from spec_core.contract.step import Step
from spec_core.contract.step_record import StepRecord
from spec_core.toolkit.plan_follower import PlanFollower


@attrs.define(eq=False)
class Clock:
    """number: of the step that the engine makes now. last: time of the step before it, None where none was timed.

    drafts: the step of drafts that the engine verifies now. follower: of controllers' plans.
    """

    follower: PlanFollower
    number: int = 0
    last: StepRecord | None = None
    drafts: Step | None = None
    _left: float = 0.0

    def step_began(self, step: Step) -> None:
        """The engine goes on with these drafts."""
        self.drafts, self._left = step, perf_counter()

    def step_ended(self, step: Step, rows: int) -> None:
        """The engine came back, and plugins learned from ``step``. rows: of its whole forward."""
        if self.drafts is not None:
            whole = perf_counter() - self.drafts.began
            seconds = self.drafts.seconds | step.seconds | {"verify": step.began - self._left}
            self.last = self.follower.end(step, whole, seconds, rows)
        self.number += 1
