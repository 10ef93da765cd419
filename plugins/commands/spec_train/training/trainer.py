"""The training loop. The samples of a step depend on its number only, so a resumed run gives the same head."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import numpy as np
from spec_commands.common import print_note

from spec_core.errors import UsageError
from spec_train.data.dataset import Dataset
from spec_train.heads.student import Student
from spec_train.training import checkpoint
from spec_train.training.evaluation import Evaluation, Result
from spec_train.training.log import Log
from spec_train.training.optimizers import autocast, make_optimizers, optimizer_step
from spec_train.training.schedule import Clock, Schedule, lr_factor, set_lr

EVALUATIONS = 10
"""Number of evaluations in a training run."""
CHECKPOINT_SECONDS = 30.0
"""Time between checkpoints."""


@attrs.define(eq=False)
class Trainer:
    """checkpoint: path of the checkpoint. fingerprint: what a checkpoint must belong to. on_step: called with the log,
    the share of the training and None after every step, and with the result in place of None after every evaluation."""

    student: Student
    dataset: Dataset
    evaluation: Evaluation
    schedule: Schedule
    checkpoint: Path
    fingerprint: str
    on_step: Callable[[Log, float, Result | None], None]
    log: Log = attrs.field(factory=Log)

    def run(self) -> Log:
        """Train to the end of the schedule. Raises UsageError for a checkpoint of another training run, for a full
        disk, and for a loss or weight that became NaN or infinite."""
        head = self.student.head
        optimizers = make_optimizers(head, self.schedule.lr, head.is_table, head.TABLE_LR_SHARE)
        self._resume(optimizers)
        try:
            self._train(optimizers)
        except KeyboardInterrupt:
            self._save(optimizers)
            print_note(f"stopped at step {self.log.step}")
            raise
        if not all(p.isfinite().all() for p in self.student.head.parameters()):
            raise self._divergence_error()
        self._evaluate(1.0)
        return self.log

    def _train(self, optimizers: list) -> None:
        saved = time.monotonic()
        for progress in self._progress():
            if int(progress * EVALUATIONS) > int(self.log.evaluated * EVALUATIONS):
                self._evaluate(progress)
            set_lr(optimizers, self.schedule.lr * lr_factor(progress))
            loss = self._backward()
            if not math.isfinite(loss):
                raise self._divergence_error()
            self.log.add(loss)
            optimizer_step(self.student.head, optimizers)
            self.on_step(self.log, progress, None)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save(optimizers)
                saved = time.monotonic()

    def _progress(self) -> Iterator[float]:
        """Shares of the training, until it is over."""
        clock = Clock(self.schedule.minutes or math.inf, self.log.spent)
        for share in clock.shares():
            self.log.spent = clock.spent
            done = self.log.step / self.schedule.steps if self.schedule.steps else share
            if done >= 1:
                return
            yield done

    def _backward(self) -> float:
        """Compute gradients of the mean loss of a batch."""
        rng = np.random.default_rng([self.schedule.seed, 2, self.log.step])
        samples = self.dataset.batch(self.schedule.seed, self.log.step, self.schedule.batch)
        with autocast(self.student.head.theta.device):
            loss = self.student.loss(samples, rng)
        loss.backward()
        return float(loss.detach())

    def _divergence_error(self) -> UsageError:
        """Error of a diverged training, which leaves no weights to save."""
        return UsageError(
            f"after {self.log.step} steps the loss or a weight became NaN or infinite",
            hint=f"pass a smaller --lr than {self.schedule.lr:g}, and remove {self.checkpoint.name} if there is one",
        )

    def _evaluate(self, progress: float) -> None:
        result = self.evaluation.run(self.student)
        self.log.results.append((progress, result))
        self.on_step(self.log, progress, result)

    def _save(self, optimizers: list) -> None:
        log = self.log
        results = [(at, r.tokens_per_step, list(r.accepted)) for at, r in log.results]
        checkpoint.save_checkpoint(
            self.checkpoint, self.student.head, optimizers,
            of=self.fingerprint, step=log.step, spent=log.spent, losses=log.losses, marks=results,
        )  # fmt: skip

    def _resume(self, optimizers: list) -> None:
        try:
            state = checkpoint.restore_checkpoint(self.checkpoint, self.student.head, optimizers)
        except Exception as error:
            raise self._unusable("cannot be read") from error
        if state is None:
            return
        if state["of"] != self.fingerprint:
            raise self._unusable("is of another head, other data or other options")
        results = [(at, Result(tokens, tuple(accepted))) for at, tokens, accepted in state["marks"]]
        self.log = Log(state["step"], state["spent"], state["losses"], results)

    def _unusable(self, value: str) -> UsageError:
        return UsageError(
            f"the checkpoint {self.checkpoint} {value}",
            hint="pass the same options to continue, or remove it to start again",
        )
