"""Steps with given numbers of rows, timed in rounds: forward, choosing tokens, everything else."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, process_time

import attrs

from spec_core import Compat, Draft, DraftStep, Run, Sampling, Target, hookimpl
from spec_core.errors import UsageError

WARM = 3
"""Uncounted steps after a prompt."""
DRIFT = 64
"""Max tokens of a text: a longer one is started again, so that all steps have about the same depth."""
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
    def draft(self, step: DraftStep) -> None:
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


def measure_steps(
    target: Target, rows: Sequence[int], depth: int, batch: int, repeats: int, sampling: Sampling
) -> dict[int, list[Timing]]:
    """{rows of each sequence: timings of ``repeats`` steps}. depth: prompt tokens of each sequence.

    Raises UsageError for what does not fit into the context.
    """
    with Rounds(target, rows, depth, batch, sampling) as rounds:
        for _ in range(repeats):
            rounds.round()
        return rounds.timings


@attrs.define(eq=False)
class Rounds:
    """Times steps of each number of rows in rounds, in alternating order. depth: prompt tokens of each sequence.

    It keeps its run open, so that rounds can be spread over a long measurement. Raises UsageError for what does not fit
    into the context.
    """

    target: Target
    rows: Sequence[int]
    depth: int
    batch: int
    sampling: Sampling
    timings: dict[int, list[Timing]] = attrs.field(init=False)
    _filler: Filler = attrs.field(factory=Filler, init=False)
    _run: Run = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.timings = {n: [] for n in self.rows}
        self._run = _run(self.target, self._filler, max(self.rows), self.depth, self.batch)

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._run.close()

    def round(self) -> None:
        """One step of each number of rows."""
        even = len(self.timings[self.rows[0]]) % 2 == 0
        for n in self.rows if even else reversed(self.rows):
            self.timings[n].append(self._time_step(n))

    def _time_step(self, rows: int) -> Timing:
        """A step with this many rows of each sequence. Raises UsageError if the target or a setting prevents it."""
        for _ in range(2):
            self._filler.drafts = rows - 1
            if self._ready() and (timing := time_next_step(self._run)).rows == rows * self.batch:
                return timing
            self._start(rows)
        timing = time_next_step(self._run)
        if timing.rows != rows * self.batch:
            raise UsageError(
                f"a step of {self.batch} times {rows} rows had {timing.rows}",
                hint="the target or a setting limits the rows: pass fewer --rows, or a smaller --batch",
            )
        return timing

    def _ready(self) -> bool:
        running = self._run.running
        return len(running) == self.batch and all(seq.output_position <= DRIFT for seq in running)

    def _start(self, rows: int) -> None:
        """New texts, past their prompts and some steps."""
        for seq in self._run.running:
            self._run.cancel(seq)
        vocab, left = self.target.info.vocab, self.target.info.context - self.depth
        for i in range(self.batch):
            prompt = [1 + (i + t) % (vocab - 1) for t in range(self.depth)]
            self._run.submit(prompt, max_tokens=left, sampling=self.sampling, seed=i, ignore_eos=True, name=str(i))
        while len(self._run.running) < self.batch or any(seq.output_position == 0 for seq in self._run.running):
            self._run.step()
        self._filler.drafts = rows - 1
        for _ in range(WARM):
            self._run.step()


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


def time_next_step(run: Run) -> Timing:
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
