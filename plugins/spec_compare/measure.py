"""Run every contender on every prompt, interleaved, all timed in the same way.

Decode time begins after the step that emits a prompt's first token, so it excludes prefill; tokens are those that the
loop emitted. Contenders take turns on each batch of prompts, in a rotating order, after a warm-up. Nothing is
reused from an earlier prompt, and a method's memory between requests is empty at the start of every repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import perf_counter, process_time
from typing import Any, NamedTuple

import attrs
from spec_cli.prompts import Prompt

from spec_core import Part, Request, Result, Run, Sampling, Sequence, Step
from spec_core.toolkit import Tally, drafted_and_accepted

WARM_TOKENS = 16


class Clock(NamedTuple):
    """wall: seconds. cpu: processor seconds of this process, all its threads."""

    wall: float
    cpu: float

    def since(self, before: Clock) -> Clock:
        return Clock(self.wall - before.wall, self.cpu - before.cpu)


def now() -> Clock:
    return Clock(perf_counter(), process_time())


@attrs.frozen(eq=False)
class Contender:
    """A name, and a function that makes its run."""

    name: str
    make: Callable[[], Run]


@attrs.frozen
class Terms:
    """The request settings of all contenders. batch: prompts that run together."""

    max_tokens: int
    sampling: Sampling
    seed: int = 0
    repeats: int = 1
    batch: int = 1

    def request(self, prompt: Prompt) -> Request:
        return Request(
            prompt.given,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            seed=prompt.seed(self.seed),
            name=prompt.id,
        )


@attrs.define
class Steps:
    """Steps of the generation phase: drafted tokens, depth of the draft, accepted, emitted, seconds since the last."""

    drafted: list[int] = attrs.field(factory=list)
    depth: list[int] = attrs.field(factory=list)
    accepted: list[int] = attrs.field(factory=list)
    emitted: list[int] = attrs.field(factory=list)
    seconds: list[float] = attrs.field(factory=list)

    def add(self, part: Part, seconds: float) -> None:
        counts = drafted_and_accepted(part)
        self.drafted.append(counts["nodes"])
        self.depth.append(counts["depth"])
        self.accepted.append(counts["accepted"])
        self.emitted.append(counts["emitted"])
        self.seconds.append(seconds)


@attrs.define(eq=False)
class Trace:
    """Observations of one sequence: times of its first and last token, and its steps."""

    first: Clock
    last: Clock
    steps: Steps = attrs.field(factory=Steps)
    tally: Tally = attrs.field(factory=Tally)


@attrs.frozen(eq=False)
class Record:
    """One run of a prompt by a contender.

    first_seconds: until the first token. decode_seconds: from the first to the last. whole_seconds: share of the lap.
    cpu_seconds: processor time of decode_seconds, all threads of this process.
    """

    contender: str
    prompt: str
    family: str
    repeat: int
    seed: int
    prompt_tokens: int
    tokens: list[int]
    finish: str
    first_seconds: float
    decode_seconds: float
    whole_seconds: float
    cpu_seconds: float
    steps: Steps
    tally: Tally

    @property
    def decode_tokens(self) -> int:
        """Tokens after the first one, which prefill produces."""
        return max(0, len(self.tokens) - 1)


@attrs.frozen(eq=False)
class Lap:
    """One run of a batch of prompts by a contender. split, forwards, rows: of the steps after the first token.

    seconds, cpu_seconds: of the whole lap, wall time and processor time of this process, all threads.
    split: seconds by hook, with ``verify`` for the target and ``host`` for the rest, measured from the end of one step
    to the end of the next; they sum to the time of the steps.
    reports: {plugin: its report of the run so far}.
    """

    contender: str
    family: str
    repeat: int
    seconds: float
    cpu_seconds: float
    split: dict[str, float]
    forwards: dict[str, int]
    rows: dict[str, int]
    records: list[Record]
    reports: dict[str, Any] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Watch:
    """Watches the steps of a run, lap by lap. last: when the last step ended."""

    last: Clock = Clock(0.0, 0.0)
    traces: dict[Sequence, Trace] = attrs.field(factory=dict)
    split: dict[str, float] = attrs.field(factory=dict)
    forwards: dict[str, int] = attrs.field(factory=dict)
    rows: dict[str, int] = attrs.field(factory=dict)

    def clear(self) -> None:
        for table in (self.traces, self.split, self.forwards, self.rows):
            table.clear()

    def look(self, step: Step) -> None:
        moment = now()
        if any(part.seq in self.traces for part in step.parts):
            self._account(step, moment.since(self.last).wall)
        for part in step.parts:
            if part.emitted:
                self._emitted(part, moment)
        self.last = moment

    def _account(self, step: Step, seconds: float) -> None:
        for label, spent in step.seconds.items():
            _add(self.split, label.partition(".")[0], spent)
        _add(self.split, "host", seconds - sum(step.seconds.values()))
        for mine, theirs in ((self.forwards, step.forwards), (self.rows, step.rows)):
            for name, n in theirs.items():
                _add(mine, name, n)

    def _emitted(self, part: Part, moment: Clock) -> None:
        trace = self.traces.get(part.seq)
        if trace is None:
            self.traces[part.seq] = Trace(moment, moment)
            return
        trace.steps.add(part, moment.since(trace.last).wall)
        trace.tally.add(part)
        trace.last = moment


def _add(table: dict[str, Any], name: str, more: float) -> None:
    table[name] = table.get(name, 0) + more


def warm(runs: dict[str, Run], prompts: list[Prompt], terms: Terms) -> None:
    """Runs every contender once, briefly, without measuring."""
    short = attrs.evolve(terms, max_tokens=min(terms.max_tokens, WARM_TOKENS))
    for name, run in runs.items():
        lap(name, run, Watch(), batches(prompts, terms.batch)[0], short, -1)


def measure(
    contenders: list[Contender], prompts: list[Prompt], terms: Terms, on_lap: Callable[[], None] = lambda: None
) -> Iterator[Lap]:
    """Laps of all contenders on all batches of prompts; ``on_lap`` is called after each."""
    groups = batches(prompts, terms.batch)
    for repeat in range(terms.repeats):
        with ExitStack() as runs:
            watched = {c.name: observed(runs.enter_context(c.make())) for c in contenders}
            for g, group in enumerate(groups):
                for name in rotated(list(watched), g + repeat):
                    yield lap(name, *watched[name], group, terms, repeat)
                    on_lap()


def observed(run: Run) -> tuple[Run, Watch]:
    watch = Watch()
    run.observe(watch.look)
    return run, watch


def rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def batches(prompts: list[Prompt], size: int) -> list[list[Prompt]]:
    """Groups of prompts that run together, each of one family."""
    families: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        families.setdefault(prompt.family, []).append(prompt)
    return [mine[i : i + size] for mine in families.values() for i in range(0, len(mine), size)]


def lap(name: str, run: Run, watch: Watch, group: list[Prompt], terms: Terms, repeat: int) -> Lap:
    """Runs all prompts of a group together until they finish."""
    watch.clear()
    began = now()
    seqs = [run.submit(terms.request(prompt)) for prompt in group]
    for _ in run:
        pass
    spent = now().since(began)
    share = spent.wall / len(group)
    pairs = zip(group, seqs, strict=True)
    records = [_record(name, p, repeat, run.take(s), watch.traces.get(s), began, share) for p, s in pairs]
    split, forwards, rows = dict(watch.split), dict(watch.forwards), dict(watch.rows)
    reports = run.stats.report()["reports"]
    return Lap(name, group[0].family, repeat, *spent, split, forwards, rows, records, reports)


def _record(
    name: str, prompt: Prompt, repeat: int, result: Result, trace: Trace | None, began: Clock, share: float
) -> Record:
    trace = trace or Trace(began, began)
    decode = trace.last.since(trace.first)
    return Record(
        contender=name,
        prompt=prompt.id,
        family=prompt.family,
        repeat=repeat,
        seed=result.seed,
        prompt_tokens=result.prompt_tokens,
        tokens=result.tokens,
        finish=result.finish_reason,
        first_seconds=trace.first.since(began).wall,
        decode_seconds=decode.wall,
        whole_seconds=share,
        cpu_seconds=decode.cpu,
        steps=trace.steps,
        tally=trace.tally,
    )
