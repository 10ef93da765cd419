"""The losses and evaluations of a training as JSON lines, for plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from spec_commands.common import write_error
from spec_commands.json_text import format_json

from spec_train.training.evaluation import Result
from spec_train.training.log import Log


@attrs.define(eq=False)
class LossLog:
    """A line for every step and every evaluation. A training that continues keeps the lines up to its checkpoint."""

    file: Path
    _started: bool = False

    def __call__(self, log: Log, progress: float, result: Result | None) -> None:
        """Write a line. Raises UsageError if the file cannot be written."""
        try:
            if not self._started:
                self._begin(log.step if result is None else log.step + 1)
            with self.file.open("a", encoding="utf-8") as file:
                file.write(format_json(line_of(log, progress, result)) + "\n")
        except OSError as error:
            raise write_error(self.file, error) from error

    def _begin(self, step: int) -> None:
        """Keep the lines before a step, of a training that was interrupted."""
        lines = self.file.read_text("utf-8").splitlines() if step > 1 and self.file.exists() else []
        kept = [line for line in lines if is_before(line, step)]
        self.file.write_text("".join(f"{line}\n" for line in kept), "utf-8")
        self._started = True


def is_before(line: str, step: int) -> bool:
    """Whether a line is whole, and of an earlier step."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and isinstance(entry.get("step"), int) and entry["step"] < step


def line_of(log: Log, progress: float, result: Result | None) -> dict[str, Any]:
    """Line of the log after a step, or after an evaluation. loss: smoothed."""
    facts: dict[str, Any] = {"step": log.step, "share": round(progress, 6), "seconds": round(log.spent, 3)}
    if result is None:
        return facts | {"loss": log.loss}
    return facts | {"tokens_per_step": result.tokens_per_step, "accepted": list(result.accepted)}
