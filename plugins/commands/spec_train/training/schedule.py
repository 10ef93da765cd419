"""The learning rate over time, and the clock that a training by minutes follows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
import torch

WARMUP = 0.02
"""Share of the time in which the learning rate rises."""
DECAY = 0.6
"""Share of the time in which the learning rate falls to zero."""


@attrs.frozen
class Schedule:
    """Duration, in ``steps`` or in ``minutes``, and learning rate. lr: max learning rate. batch: samples of a step."""

    seed: int
    lr: float
    batch: int
    steps: int | None = None
    minutes: float | None = None


@attrs.define
class Clock:
    """A duration of ``minutes``. spent: seconds of it, including those before an interruption."""

    minutes: float
    spent: float = 0.0

    def shares(self) -> Iterator[float]:
        """Shares of the time that has passed, until all of it has."""
        start = time.monotonic() - self.spent
        while True:
            self.spent = time.monotonic() - start
            if self.spent >= 60 * self.minutes:
                return
            yield self.spent / (60 * self.minutes)


def lr_factor(progress: float) -> float:
    """Factor of the learning rate at a share of the time: linear warm-up, constant, linear decay to zero."""
    if progress < WARMUP:
        return progress / WARMUP
    return min(1.0, max(0.0, (1 - progress) / DECAY))


def set_lr(optimizers: list[torch.optim.Optimizer], lr: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("share", 1.0)
