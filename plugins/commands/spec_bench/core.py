"""Time of the core itself: a step without model and method.

A step is hooks, checks, verdict and commit: temperature 0, plain or with DRAFTED tokens per sequence, fixed logits, one
thread. The target returns the same logits in every step and the drafter the same tokens; half of them are accepted, so
that every path is taken.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import attrs
import torch

from spec_core import (
    AcceptStep,
    Batch,
    Compat,
    Draft,
    DraftStep,
    Needs,
    Request,
    RollbackStep,
    Rows,
    Run,
    Sequence,
    TargetInfo,
    TargetOutput,
    hookimpl,
)
from spec_core.errors import UsageError

VOCAB, DRAFTED, PROMPT, CONTEXT = 4096, 4, 32, 1 << 20
WARM = 50
"""Uncounted steps."""
FOLDERS = (".", "kernels", "plugins/decoding", "plugins/models", "plugins/commands", "plugins")
"""Folders of packages in a checkout; in older ones all plugins are in the last."""
ROUNDS = 5
"""Repeats of each side within one turn of a comparison of two checkouts."""


class NullTarget:
    """Fixed logits: the best token of row 0 is 1, of row 1 it is 2, and so on, so two of four drafts are accepted."""

    tokenizer = None

    def __init__(self, batch: int) -> None:
        self.info = TargetInfo("null", vocab=VOCAB, width=1, layers=1, context=CONTEXT)
        row = torch.zeros(1 + DRAFTED, VOCAB)
        row[range(1 + DRAFTED), [1, 2, 3, 4, 5]] = 1.0
        self.drafting = TargetOutput(row.repeat(batch, 1))
        self.plain = TargetOutput(torch.cat([row[:1]] * batch))

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        return self.drafting if batch.parts[0].draft is not None else self.plain

    def open(self, seq: Sequence, want: int) -> int:
        return want

    def close(self, seq: Sequence) -> None:
        pass

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"})

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        pass


@attrs.define(eq=False)
class NullDrafter:
    """Drafts the tokens 1, 2, 9, 9; two are accepted."""

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([1, 2, 9, 9]))


@attrs.define(eq=False)
class Idle:
    """Implements every hook with an empty body."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl
    def accept(self, step: AcceptStep) -> None:
        pass

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        pass

    @hookimpl
    def process(self, rows: Rows) -> None:
        pass


CASES = {
    "plain, batch 1": (1, False, 0),
    "plain, batch 8": (8, False, 0),
    "draft, batch 1": (1, True, 0),
    "draft, batch 1, 8 idle plugins": (1, True, 8),
    "draft, batch 8": (8, True, 0),
    "draft, batch 8, 8 idle plugins": (8, True, 8),
}
"""{name: (sequences, whether they draft, idle plugins)}"""


@attrs.frozen
class CaseTime:
    """Microseconds of a step: median and minimum of the repeats."""

    case: str
    median: float
    best: float


@attrs.frozen
class Ratio:
    """Microseconds of a step here and in another checkout, and the median of their ratios."""

    case: str
    median: float
    theirs: float
    ratio: float


def measure_cases(steps: int, repeats: int) -> list[CaseTime]:
    """Measure every case with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_time_case(case, steps, repeats) for case in CASES]
    finally:
        torch.set_num_threads(threads)


def _time_case(case: str, steps: int, repeats: int) -> CaseTime:
    run = start_run(case)
    times = [_seconds(run, steps) * 1e6 for _ in range(repeats)]
    return CaseTime(case, statistics.median(times), min(times))


def start_run(case: str) -> Run:
    """A run in which every sequence has begun to generate, and whose work was checked."""
    batch, drafts, idle = CASES[case]
    methods = [NullDrafter()] if drafts else []
    target: Any = NullTarget(batch)
    run = Run(
        target,
        [*methods, *((f"idle-{i}", Idle()) for i in range(idle))],
        draft_max=DRAFTED,
        max_sequences=batch,
    )
    for i in range(batch):
        run.submit(Request([1] * PROMPT, max_tokens=CONTEXT - PROMPT, name=str(i)))
    for _ in range(WARM):
        run.step()
    _check(run, drafts)
    return run


def _check(run: Run, drafts: bool) -> None:
    """Check the tokens of a step: three with drafts, two of them drafted, else one. Raises AssertionError."""
    tokens, sources = ([1, 2, 3], ["null-drafter", "null-drafter", None]) if drafts else ([1], [None])
    events = run.step()
    sequences = len(run.running)
    emitted = [e.token for e in events], [e.source for e in events]
    if emitted != (tokens * sequences, sources * sequences):
        raise AssertionError(f"a step emitted {emitted}")


def _seconds(run: Run, steps: int) -> float:
    began = perf_counter()
    for _ in range(steps):
        run.step()
    return (perf_counter() - began) / steps


def measure_against(folder: Path, steps: int, rounds: int) -> list[Ratio]:
    """Measure both checkouts in turns, each in a process of its own. Raises UsageError if one of them fails."""
    pairs: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    here = Path(__file__).resolve().parents[3]
    for i in range(rounds):
        sides = (here, folder) if i % 2 else (folder, here)
        times = {side: time_checkout(side, steps) for side in sides}
        for case in CASES:
            pairs[case].append((times[here][case], times[folder][case]))
    return [ratio_of(case, turns) for case, turns in pairs.items()]


def ratio_of(case: str, pairs: list[tuple[float, float]]) -> Ratio:
    """pairs: microseconds (here, there) of each turn."""
    here, there = zip(*pairs, strict=True)
    ratio = statistics.median(a / b for a, b in pairs)
    return Ratio(case, statistics.median(here), statistics.median(there), ratio)


def time_checkout(checkout: Path, steps: int) -> dict[str, float]:
    """{case: microseconds} of a checkout."""
    command = [sys.executable, "-m", "spec_core", "bench", "core", "--json"]
    path = os.pathsep.join(str(checkout / folder) for folder in FOLDERS)
    done = subprocess.run(
        [*command, "--steps", str(steps), "--repeats", str(ROUNDS)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UsageError(f"{checkout}: `spec bench core` failed: {message[0]}", hint="pass a checkout that has it")
    return {row["case"]: row["median"] for row in json.loads(done.stdout)["cases"]}
