"""How a training is shown: a line now and then with the time that is left, and the curve of the loss at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
from spec_cli.common import note

from spec_train.course import Diary, Plan
from spec_train.exam import Marks

BARS = "▁▂▃▄▅▆▇█"
SECONDS, MINUTE = 15.0, 60.0
WIDTH = 60


@attrs.define
class Progress:
    """Of answers: a note for every tenth of all, and at least once a minute."""

    of: int
    shown: float = attrs.field(factory=time.monotonic)

    def __call__(self, done: int) -> None:
        if done % max(1, self.of // 10) == 0 or time.monotonic() - self.shown > MINUTE:
            self.shown = time.monotonic()
            note(f"answered {done} of {self.of} prompts")


@attrs.define
class Teller:
    """Notes on standard error."""

    plan: Plan
    shown: float = attrs.field(factory=time.monotonic)

    def __call__(self, diary: Diary, progress: float, marks: Marks | None) -> None:
        if marks is not None:
            note(f"{progress:4.0%}  step {diary.step}  loss {diary.loss:.3f}  {marks}")
        elif time.monotonic() - self.shown > SECONDS:
            self.shown = time.monotonic()
            note(f"{progress:4.0%}  step {diary.step}  loss {diary.loss:.3f}  {self._left(diary, progress)}")

    def _left(self, diary: Diary, progress: float) -> str:
        if self.plan.minutes:
            return f"{clock(60 * self.plan.minutes - diary.spent)} left"
        return f"about {clock(diary.spent / progress - diary.spent)} left" if progress else ""


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60} min {whole % 60:02} s"


def curve(losses: Sequence[float], width: int = WIDTH) -> str:
    """One line: the loss from the beginning to the end, low bars are low losses."""
    if not losses:
        return "no steps"
    columns = [losses[int(i * len(losses) / width)] for i in range(min(width, len(losses)))] + [losses[-1]]
    low, high = min(columns), max(columns)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return f"{losses[0]:.3f} {''.join(BARS[round((x - low) * scale)] for x in columns)} {losses[-1]:.3f}"
