"""The target writes on: prompts become texts of its own, which is what its heads will have to draft.

Answers are kept in a file beside the head's, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from spec_core import Run, Sampling, Target
from spec_core.errors import UsageError, why
from spec_train.lessons import Row

SLOTS = 8
"""Prompts that are answered together."""
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


def answered(
    target: Target, asked: Sequence[tuple[int, ...]], n: int, sampling: Sampling, seed: int
) -> Iterator[tuple[int, Row]]:
    """(number of the prompt, prompt and answer), a few at a time as they are finished; n: most tokens of an answer."""
    run = Run(target, max_sequences=SLOTS)
    room = max(1, target.info.context - n - 1)
    for first in range(0, len(asked), SLOTS):
        part = [tuple(tokens[-room:]) for tokens in asked[first : first + SLOTS]]
        waiting = [
            (tokens, run.submit(list(tokens), max_tokens=n, sampling=sampling, seed=seed + first + i))
            for i, tokens in enumerate(part)
        ]
        for _ in run:
            pass
        for i, (tokens, seq) in enumerate(waiting):
            yield first + i, Row((*tokens, *run.take(seq).tokens), len(tokens))


def kept(
    path: Path,
    target: Target,
    asked: Sequence[tuple[int, ...]],
    n: int,
    sampling: Sampling,
    seed: int,
    told: Callable[[int, int], None],
) -> list[Row]:
    """All answers; those that are in the file already are not written again. Raises UsageError for a full disk."""
    rows = _held(path)[: len(asked)]
    done = len(rows)
    try:
        with path.open("a", encoding="utf-8") as file:
            for i, row in answered(target, asked[done:], n, sampling, seed + done):
                file.write(json.dumps({"start": row.start, "tokens": row.tokens}) + "\n")
                file.flush()
                rows.append(row)
                told(done + i + 1, len(asked))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {why(error)}", hint="make room, or give another --out") from error
    return rows


def _held(path: Path) -> list[Row]:
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
