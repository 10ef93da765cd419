"""Progress on standard error: a line every few seconds with the time left, and the curve of the loss at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
from spec_commands.common import print_note

from spec_train.training.evaluation import Result
from spec_train.training.log import Log
from spec_train.training.schedule import Schedule

BARS = "▁▂▃▄▅▆▇█"
STEP_SECONDS = 15.0
"""Max time between two lines about steps."""
ANSWER_SECONDS = 60.0
"""Max time between two lines about answers."""
WIDTH = 60


@attrs.define
class AnswerProgress:
    """A line for every tenth of all answers, and at least one a minute."""

    total: int
    shown: float = attrs.field(factory=time.monotonic)

    def __call__(self, done: int) -> None:
        if done % max(1, self.total // 10) == 0 or time.monotonic() - self.shown > ANSWER_SECONDS:
            self.shown = time.monotonic()
            print_note(f"answered {done} of {self.total} prompts")


@attrs.define
class StepProgress:
    """A line for every evaluation, and one every 15 seconds."""

    schedule: Schedule
    shown: float = attrs.field(factory=time.monotonic)

    def __call__(self, log: Log, progress: float, result: Result | None) -> None:
        if result is not None:
            print_note(f"{progress:4.0%}  step {log.step}  loss {log.loss:.3f}  {result}")
        elif time.monotonic() - self.shown > STEP_SECONDS:
            self.shown = time.monotonic()
            print_note(f"{progress:4.0%}  step {log.step}  loss {log.loss:.3f}  {self._time_left(log, progress)}")

    def _time_left(self, log: Log, progress: float) -> str:
        if self.schedule.minutes:
            return f"{clock(60 * self.schedule.minutes - log.spent)} left"
        return f"about {clock(log.spent / progress - log.spent)} left" if progress else ""


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60} min {whole % 60:02} s"


def curve(losses: Sequence[float], width: int = WIDTH) -> str:
    """One line: the loss from the first step to the last, as bars between the first and the last value."""
    if not losses:
        return "no steps"
    columns = [losses[int(i * len(losses) / width)] for i in range(min(width, len(losses)))] + [losses[-1]]
    low, high = min(columns), max(columns)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return f"{losses[0]:.3f} {''.join(BARS[round((x - low) * scale)] for x in columns)} {losses[-1]:.3f}"
