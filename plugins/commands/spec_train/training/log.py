"""The log of a training run."""

from __future__ import annotations

import attrs

from spec_train.training.evaluation import Result

SMOOTHING = 0.95
"""Weight of the earlier losses in the smoothed loss."""


@attrs.define
class Log:
    """step: number of steps so far. spent: seconds. losses: smoothed, one per step. results: (share of the training,
    result) of every evaluation."""

    step: int = 0
    spent: float = 0.0
    losses: list[float] = attrs.field(factory=list)
    results: list[tuple[float, Result]] = attrs.field(factory=list)

    @property
    def loss(self) -> float:
        return self.losses[-1] if self.losses else float("nan")

    @property
    def evaluated(self) -> float:
        """Share of the training at the last evaluation."""
        return self.results[-1][0] if self.results else 0.0

    def add(self, loss: float) -> None:
        self.step += 1
        self.losses.append(SMOOTHING * self.loss + (1 - SMOOTHING) * loss if self.losses else loss)
