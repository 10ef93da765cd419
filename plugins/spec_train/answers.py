"""The target writes on: prompts become texts of its own, which is what its heads will have to draft.

Answers are kept in a file beside the head's, and what the target said of them on the shelf, so that an interrupted run
goes on where it was.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np

from spec_core import Run, Sampling
from spec_core import Sequence as Running
from spec_core.errors import UsageError, why
from spec_train.lessons import Row, Teacher
from spec_train.listen import Listener
from spec_train.shelf import Shelf

SLOTS = 16
"""Prompts that are answered together; a place is taken again as soon as it is free."""
SHORTEST, LONGEST = 0.3, 0.7
"""Where a text is cut to make a prompt of it, as shares of it."""


def prompts(rows: Sequence[Row], most: int, length: int, seed: int) -> list[tuple[int, ...]]:
    """``most`` prompts: those of rows that have one, else beginnings of pieces of texts."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for i in range(most):
        row = rows[i % len(rows)] if most <= len(rows) else rows[int(rng.integers(len(rows)))]
        if row.start:
            found.append(row.tokens[: row.start][-length:])
            continue
        at = int(rng.integers(max(1, len(row.tokens) - length + 1)))
        piece = row.tokens[at : at + length]
        found.append(piece[: max(1, round(len(piece) * rng.uniform(SHORTEST, LONGEST)))])
    return found


@attrs.frozen
class Asking:
    """How prompts are answered. n: most tokens of an answer. temperatures: each answer has one of them, drawn."""

    n: int
    temperatures: tuple[float, ...]
    seed: int

    def sampling(self, number: int) -> Sampling:
        """Of the answer to a prompt."""
        drawn = np.random.default_rng([self.seed, 5, number]).integers(len(self.temperatures))
        return Sampling(temperature=self.temperatures[int(drawn)])


@attrs.define(eq=False)
class Desk:
    """Where prompts are answered, what the target says is taken down, and both are kept."""

    teacher: Teacher
    shelf: Shelf
    _listener: Listener = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listener = Listener(self.teacher)

    def kept(
        self,
        path: Path,
        asked: Sequence[tuple[int, ...]],
        how: Asking,
        seconds: float = math.inf,
        told: Callable[[int], None] = lambda done: None,
    ) -> list[Row]:
        """All answers; those that are in the file already are not written again.

        seconds: after which no other prompt is begun. told: called with the number of answers. Raises UsageError for a
        full disk, and for a file of answers to other prompts."""
        rows = held(path)[: len(asked)]
        if any(row.tokens[: row.start] != self._prompt(prompt, how) for row, prompt in zip(rows, asked, strict=False)):
            raise UsageError(f"{path} has answers to other prompts", hint="remove it, or give another --out")
        try:
            with path.open("a", encoding="utf-8") as file:
                for row in self.answered(asked, len(rows), how, time.monotonic() + seconds):
                    file.write(json.dumps({"start": row.start, "tokens": row.tokens}) + "\n")
                    file.flush()
                    rows.append(row)
                    told(len(rows))
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {why(error)}", hint="make room, or give another --out"
            ) from error
        return rows

    def answered(self, asked: Sequence[tuple[int, ...]], first: int, how: Asking, until: float) -> Iterator[Row]:
        """Prompt and answer of ``asked[first:]``, in order, without the last token, which was never evaluated.

        until: of time.monotonic; none is begun later.
        """
        with Run(self.teacher.target, [("listener", self._listener)], max_sequences=SLOTS) as run:
            yield from self._answers(run, asked, first, how, until)

    def _answers(
        self, run: Run, asked: Sequence[tuple[int, ...]], first: int, how: Asking, until: float
    ) -> Iterator[Row]:
        running: dict[int, Running] = {}
        ended: dict[int, Row] = {}
        begun = first
        while True:
            while begun < len(asked) and len(running) < SLOTS and time.monotonic() < until:
                prompt, sampling = list(self._prompt(asked[begun], how)), how.sampling(begun)
                running[begun] = run.submit(prompt, max_tokens=how.n, sampling=sampling, seed=how.seed + begun)
                begun += 1
            if not running:
                return
            run.step()
            ended |= {i: self._taken(run, running.pop(i)) for i in [i for i, seq in running.items() if seq.finish]}
            while first in ended:
                yield ended.pop(first)
                first += 1

    def _prompt(self, tokens: Sequence[int], how: Asking) -> tuple[int, ...]:
        """Its end, so that there is room for the answer."""
        return tuple(tokens[-max(1, self.teacher.target.info.context - how.n - 1) :])

    def _taken(self, run: Run, seq: Running) -> Row:
        run.take(seq)
        row = Row(tuple(seq.tokens[: seq.delivered]), seq.prompt_len)
        self.shelf.put(row, self._listener.lesson(seq, row.start))
        return row


def held(path: Path) -> list[Row]:
    """Whole lines of an earlier run; what was cut off is dropped."""
    if not path.exists():
        return []
    rows, whole = [], []
    for line in path.read_text("utf-8").splitlines(keepends=True):
        try:
            entry = json.loads(line)
            rows.append(Row(tuple(entry["tokens"]), int(entry["start"])))
        except (ValueError, KeyError, TypeError):
            break
        whole.append(line)
    path.write_text("".join(whole), "utf-8")
    return rows
