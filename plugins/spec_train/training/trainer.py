"""Training proper: rows are picked by the number of the step, so a course goes on after a kill as if undisturbed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import numpy as np
from spec_cli.common import note

from spec_core.errors import UsageError
from spec_train.exam import Exam, Marks
from spec_train.lessons import Lessons
from spec_train.loop import Clock, advance, fast, optimizers, rate, restore, save, set_rate
from spec_train.picking import pick
from spec_train.pupils import Pupil

SLOWER = 0.2
"""How fast a matrix with a row per token learns, which began as the target's, beside all others."""
EXAMS = 10
"""How often a head is tried on held-out prompts."""
EVERY = 30.0
"""Seconds between checkpoints."""
SMOOTH = 0.95


@attrs.frozen
class Plan:
    """How long, and how: by ``steps`` or by ``minutes``. batch: rows of a step."""

    seed: int
    lr: float
    batch: int
    steps: int | None = None
    minutes: float | None = None


@attrs.define
class Diary:
    """What happened so far: the smoothed loss after every step, and (share of the course, what the head is worth)."""

    step: int = 0
    spent: float = 0.0
    losses: list[float] = attrs.field(factory=list)
    marks: list[tuple[float, Marks]] = attrs.field(factory=list)

    @property
    def loss(self) -> float:
        return self.losses[-1] if self.losses else float("nan")

    def add(self, loss: float) -> None:
        self.step += 1
        self.losses.append(SMOOTH * self.loss + (1 - SMOOTH) * loss if self.losses else loss)


@attrs.define(eq=False)
class Course:
    """told: called after every step, and with marks after every trial; ``place``: the checkpoint's file."""

    pupil: Pupil
    lessons: Lessons
    exam: Exam
    plan: Plan
    place: Path
    mark: str
    told: Callable[[Diary, float, Marks | None], None]
    diary: Diary = attrs.field(factory=Diary)

    def run(self) -> Diary:
        """Learn to the end of the plan. Raises UsageError for a checkpoint of something else, and for a full disk."""
        opts = optimizers(self.pupil.head, self.plan.lr, lambda name: name == "output/weight", SLOWER)
        self._resume(opts)
        try:
            self._learn(opts)
        except KeyboardInterrupt:
            self._keep(opts)
            note(f"stopped at step {self.diary.step}")
            raise
        if not all(p.isfinite().all() for p in self.pupil.head.parameters()):
            raise self._unsound()
        self._try(1.0)
        return self.diary

    def _learn(self, opts: list) -> None:
        kept = time.monotonic()
        for progress in self._progress():
            if int(progress * EXAMS) > int(self._tried * EXAMS):
                self._try(progress)
            set_rate(opts, self.plan.lr * rate(progress))
            loss = self._step()
            if not math.isfinite(loss):
                raise self._unsound()
            self.diary.add(loss)
            advance(self.pupil.head, opts)
            self.told(self.diary, progress, None)
            if time.monotonic() - kept > EVERY:
                self._keep(opts)
                kept = time.monotonic()

    def _progress(self) -> Iterator[float]:
        """Shares of the course, until it is over."""
        clock = Clock(self.plan.minutes or math.inf, self.diary.spent)
        for share in clock.shares():
            self.diary.spent = clock.spent
            done = self.diary.step / self.plan.steps if self.plan.steps else share
            if done >= 1:
                return
            yield done

    @property
    def _tried(self) -> float:
        return self.diary.marks[-1][0] if self.diary.marks else 0.0

    def _step(self) -> float:
        """Gradients of the mean loss of a batch."""
        rng = np.random.default_rng([self.plan.seed, 2, self.diary.step])
        lessons = pick(self.lessons, self.plan.seed, self.diary.step, self.plan.batch)
        with fast(self.pupil.head.theta.device):
            loss = self.pupil.loss(lessons, rng)
        loss.backward()
        return float(loss.detach())

    def _unsound(self) -> UsageError:
        """Such a head has nothing to keep."""
        return UsageError(
            f"after {self.diary.step} steps the loss is no number any more",
            hint=f"give a smaller --lr than {self.plan.lr:g}, and remove {self.place.name} where there is one",
        )

    def _try(self, progress: float) -> None:
        marks = self.exam.mark(self.pupil)
        self.diary.marks.append((progress, marks))
        self.told(self.diary, progress, marks)

    def _keep(self, opts: list) -> None:
        d = self.diary
        marks = [(at, m.tokens_per_step, list(m.accepted)) for at, m in d.marks]
        save(
            self.place, self.pupil.head, opts,
            of=self.mark, step=d.step, spent=d.spent, losses=d.losses, marks=marks,
        )  # fmt: skip

    def _resume(self, opts: list) -> None:
        try:
            state = restore(self.place, self.pupil.head, opts)
        except Exception as error:
            raise self._foreign("cannot be read") from error
        if state is None:
            return
        if state["of"] != self.mark:
            raise self._foreign("is of another head, other data or other options")
        marks = [(at, Marks(worth, tuple(accepted))) for at, worth, accepted in state["marks"]]
        self.diary = Diary(state["step"], state["spent"], state["losses"], marks)

    def _foreign(self, found: str) -> UsageError:
        return UsageError(
            f"the checkpoint {self.place} {found}",
            hint="give the same options to go on, or remove it to begin again",
        )
