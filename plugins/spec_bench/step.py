"""Steps of a given number of rows, with the core's own timers: forward, choosing tokens, everything else."""

from __future__ import annotations

import statistics
from time import perf_counter, process_time

import attrs

from spec_core import Compat, Draft, Request, Run, Sampling, Step, Target, hookimpl
from spec_core.errors import UsageError

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Rows of one sequence in a forward: a pending token and drafts."""
WARM = 3
"""Uncounted steps after the prompt."""
CHUNK = 64
"""Min prompt tokens of a sequence in one forward: every prompt takes part in every one, so that all end together."""


MEDIANS = ("choosing", "core", "step", "step_cpu")
"""Timers whose median over steps is reported, beside the forward."""


@attrs.define(eq=False)
class Filler:
    """Drafts the same token a fixed number of times."""

    drafts: int

    @hookimpl
    def compat(self) -> Compat:
        return Compat()

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted:
            step.propose(seq, Draft([1] * min(self.drafts, budget)))


@attrs.frozen
class Cost:
    """Times in seconds. rows: of each sequence. depth: cached rows of each sequence before the first timed step.

    forward, forward_median: min and median. choosing: accepting drafts and drawing tokens, median. core: the rest of
    a step without drafting, median. step, step_cpu: medians of a whole step's wall time, and of its processor time in
    this process, all threads.
    bytes: min bytes that the forward reads, weights and cached rows; None if the target does not report them.
    """

    rows: int
    batch: int
    depth: int
    forward: float
    forward_median: float
    choosing: float
    core: float
    step: float
    step_cpu: float
    bytes: int | None

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of the fastest forward."""
        return None if self.bytes is None else self.bytes / self.forward

    @property
    def overhead(self) -> float:
        """Share of a step outside the forward."""
        around = self.choosing + self.core
        return around / (around + self.forward_median)


def measure(target: Target, rows: int, depth: int, batch: int, repeats: int, sampling: Sampling) -> Cost:
    """Times steps of ``batch`` sequences after prompts of ``depth`` tokens. Raises UsageError if they do not fit."""
    with started(target, rows, depth, batch, repeats, sampling) as run:
        steps = [timed(run) for _ in range(WARM + repeats)][WARM:]
    if any(step["rows"] != rows * batch for step in steps):
        raise UsageError(
            f"a step of {batch} times {rows} rows had {steps[0]['rows']:.0f}",
            hint="the target or a setting limits the rows: pass fewer --rows, or a smaller --batch",
        )
    forward = [step["verify"] for step in steps]
    middle = {name: statistics.median(step[name] for step in steps) for name in MEDIANS}
    return Cost(
        rows, batch, depth, min(forward), statistics.median(forward), **middle, bytes=read(target, depth, batch)
    )


def started(target: Target, rows: int, depth: int, batch: int, repeats: int, sampling: Sampling) -> Run:
    """A run whose sequences have evaluated their prompts."""
    tokens = rows * (WARM + repeats + 1) + 1
    if depth + tokens > target.info.context:
        raise UsageError(
            f"{depth} rows and steps of {rows} need {depth + tokens} positions, {target.info.name} has "
            f"{target.info.context}",
            hint="give a smaller --depth, fewer --rows or --repeats",
        )
    chunk = max(rows, CHUNK)
    run = Run(
        target,
        [("filler", Filler(rows - 1))] if rows > 1 else [],
        draft_max=max(rows - 1, 1),
        max_sequences=batch,
        prefill_chunk=chunk,
        max_batched_tokens=batch * chunk,
    )
    for i in range(batch):
        prompt = [1 + (i + t) % (target.info.vocab - 1) for t in range(depth)]
        run.submit(Request(prompt, max_tokens=tokens, sampling=sampling, seed=i, ignore_eos=True, name=str(i)))
    while len(run.running) < batch or any(seq.t == 0 for seq in run.running):
        run.step()
    return run


def timed(run: Run) -> dict[str, float]:
    """Seconds of each part of a step, and its number of rows."""
    before, rows = dict(run.stats.seconds), run.stats.rows.get("target", 0)
    began, cpu_began = perf_counter(), process_time()
    run.step()
    whole, cpu = perf_counter() - began, process_time() - cpu_began
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in run.stats.seconds.items()}
    choosing = sum(s for name, s in spent.items() if name.startswith("accept."))
    drafting = sum(s for name, s in spent.items() if name.startswith("draft."))
    core = whole - spent["verify"] - choosing - drafting
    seconds = {"verify": spent["verify"], "choosing": choosing, "core": core, "step": whole, "step_cpu": cpu}
    return {**seconds, "rows": run.stats.rows["target"] - rows}


def read(target: Target, depth: int, batch: int) -> int | None:
    """Bytes of all weights, including unused experts of a mixture, and of the rows cached before the step."""
    weights, row = (target.info.extras.get(name) for name in ("weight_bytes", "row_bytes"))
    return None if weights is None or row is None else int(weights + row * depth * batch)
