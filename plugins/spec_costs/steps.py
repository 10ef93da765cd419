"""Steps with given numbers of rows, timed in turns: forward, choosing tokens, everything else."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, process_time

import attrs

from spec_core import Compat, Draft, Request, Run, Sampling, Step, Target, hookimpl
from spec_core.errors import UsageError

WARM = 3
"""Uncounted steps after a prompt."""
CHUNK = 64
"""Min prompt tokens of a sequence in one forward: every prompt takes part in every one, so that all end together."""


@attrs.define(eq=False)
class Filler:
    """Drafts the same token a fixed number of times."""

    drafts: int = 0

    @hookimpl
    def compat(self) -> Compat:
        return Compat()

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted if self.drafts else ():
            step.propose(seq, Draft([1] * min(self.drafts, budget)))


@attrs.frozen
class Timing:
    """Seconds of one step without its drafting. rows: of all sequences.

    forward: the target's. choosing: accepting drafts and drawing tokens. core: the rest. step: all of them. step_cpu:
    processor time of this process in the whole step, all threads.
    """

    rows: int
    forward: float
    choosing: float
    core: float
    step_cpu: float

    @property
    def step(self) -> float:
        return self.forward + self.choosing + self.core


def measure(
    target: Target, rows: Sequence[int], depth: int, batch: int, repeats: int, sampling: Sampling
) -> dict[int, list[Timing]]:
    """{rows of each sequence: timings of so many steps}; the numbers of rows take turns, and the order alternates.

    depth: prompt tokens of each sequence; a text that ends is started again. Raises UsageError for what does not fit
    into the context.
    """
    filler = Filler()
    with _run(target, filler, max(rows), depth, batch) as run:
        steps = _Steps(run, filler, depth, batch, sampling)
        found: dict[int, list[Timing]] = {n: [] for n in rows}
        for i in range(repeats):
            for n in rows if i % 2 == 0 else reversed(rows):
                found[n].append(steps.timed(n))
    return found


def _run(target: Target, filler: Filler, rows: int, depth: int, batch: int) -> Run:
    tokens = rows * (WARM + 2) + 1
    if depth + tokens > target.info.context:
        raise UsageError(
            f"{depth} cached rows and steps of {rows} need {depth + tokens} positions, {target.info.name} has "
            f"{target.info.context}",
            hint="pass a smaller depth, or fewer rows",
        )
    chunk = max(rows, CHUNK)
    return Run(
        target,
        [("filler", filler)],
        draft_max=max(rows - 1, 1),
        nodes_max=max(rows - 1, 1),
        max_sequences=batch,
        prefill_chunk=chunk,
        max_batched_tokens=batch * chunk,
        reuse=False,
    )


@attrs.define(eq=False)
class _Steps:
    """Times steps of a run, and starts its texts again when one of them ends."""

    run: Run
    filler: Filler
    depth: int
    batch: int
    sampling: Sampling

    def timed(self, rows: int) -> Timing:
        """A step with this many rows of each sequence. Raises UsageError if the target or a setting prevents it."""
        for _ in range(2):
            self.filler.drafts = rows - 1
            if len(self.run.running) == self.batch and (timing := timed(self.run)).rows == rows * self.batch:
                return timing
            self._start(rows)
        timing = timed(self.run)
        if timing.rows != rows * self.batch:
            raise UsageError(
                f"a step of {self.batch} times {rows} rows had {timing.rows}",
                hint="the target or a setting limits the rows: pass fewer --rows, or a smaller --batch",
            )
        return timing

    def _start(self, rows: int) -> None:
        """New texts, past their prompts and some steps."""
        for seq in self.run.running:
            self.run.cancel(seq)
        vocab, left = self.run.target.info.vocab, self.run.target.info.context - self.depth
        for i in range(self.batch):
            prompt = [1 + (i + t) % (vocab - 1) for t in range(self.depth)]
            request = Request(
                prompt, max_tokens=left, sampling=self.sampling, seed=i, ignore_eos=True, name=str(i)
            )  # fmt: skip
            self.run.submit(request)
        while len(self.run.running) < self.batch or any(seq.t == 0 for seq in self.run.running):
            self.run.step()
        self.filler.drafts = rows - 1
        for _ in range(WARM):
            self.run.step()


def timed(run: Run) -> Timing:
    """The next step of a run."""
    before, rows = dict(run.stats.seconds), run.stats.rows.get("target", 0)
    began, cpu_began = perf_counter(), process_time()
    run.step()
    whole, cpu = perf_counter() - began, process_time() - cpu_began
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in run.stats.seconds.items()}
    choosing = sum(s for name, s in spent.items() if name.startswith("accept."))
    drafting = sum(s for name, s in spent.items() if name.startswith("draft."))
    core = whole - spent["verify"] - choosing - drafting
    return Timing(run.stats.rows["target"] - rows, spent["verify"], choosing, core, cpu)
