"""Run every contender on every prompt, interleaved, all timed in the same way.

Decode time begins after the step that emits a prompt's first token, so it excludes prefill; emitted tokens count.
Contenders take turns on each batch of prompts, in a rotating order, after a warm-up. Nothing is reused from an earlier
prompt, and a method's memory between requests is empty at the start of every repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from time import perf_counter, process_time
from typing import Any, NamedTuple

import attrs
from spec_commands import machine
from spec_commands.heap import frozen_heap
from spec_commands.prompts import Prompt
from spec_costs import drafting

from spec_compare.inputs.conversation import next_prompt, turns_of
from spec_compare.inputs.sized import length_of
from spec_compare.measuring.energy import Meter
from spec_compare.measuring.tracing import Drafts, add_prompt_step, pieces
from spec_compare.records.record import PLAIN, Lap, PromptSteps, Record, Steps
from spec_core import Part, Request, Result, Run, Sampling, Sequence, Step, Target
from spec_core.toolkit import DraftStatistics, draft_counts

WARM_TOKENS = 16


class Clock(NamedTuple):
    """wall: seconds. cpu: processor seconds of this process, all its threads."""

    wall: float
    cpu: float

    def since(self, before: Clock) -> Clock:
        return Clock(self.wall - before.wall, self.cpu - before.cpu)


def clock_now() -> Clock:
    return Clock(perf_counter(), process_time())


@attrs.frozen
class RequestSettings:
    """The request settings of all contenders. batch: prompts that run together.

    reuse_turns: a turn of a conversation reuses the rows of the turn before. trace: record the drafts of every step.
    prompt_tokens: prompts of one turn are cut to this length; None for no limit.
    """

    max_tokens: int
    sampling: Sampling
    seed: int = 0
    repeats: int = 1
    batch: int = 1
    reuse_turns: bool = False
    trace: bool = False
    prompt_tokens: int | None = None

    def request(self, prompt: Prompt, content: Any = None, turn: int = 0) -> Request:
        """content: the prompt with the turns before, if it is not the first turn."""
        return Request(
            prompt.given if content is None else content,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            seed=prompt.seed(self.seed),
            reuse=turn > 0,
            name=prompt.id,
        )


@attrs.frozen(eq=False)
class Baseline:
    """Setup that contenders share with the plain decoding that they are compared with.

    baseline: name of that plain decoding. prompts: as this target takes them.
    """

    baseline: str
    target: Target
    request_settings: RequestSettings
    prompts: list[Prompt]

    def prompt(self, id: str) -> Prompt:
        """The prompt of this id, as it was measured."""
        return next(prompt for prompt in self.prompts if prompt.id == id)


@attrs.frozen(eq=False)
class Contender:
    """A name, and a function that makes its run.

    remembers: methods or the rule may carry memory from one request to the next.
    """

    name: str
    make: Callable[[], Run]
    setup: Baseline | None = None
    remembers: bool = True

    @property
    def baseline(self) -> str:
        return PLAIN if self.setup is None else self.setup.baseline


def add_step(steps: Steps, part: Part, seconds: float) -> None:
    """Add a step of a sequence."""
    counts = draft_counts(part)
    steps.drafted.append(counts["nodes"])
    steps.depth.append(counts["depth"])
    steps.accepted.append(counts["accepted"])
    steps.emitted.append(counts["emitted"])
    steps.seconds.append(seconds)
    steps.tested.append(counts["tested"])
    steps.verified.append(len(part.full_verdict.path) if part.draft is not None and part.full_verdict else 0)


@attrs.define(eq=False)
class Timeline:
    """Observations of one sequence: times of its first and last token, its steps, and their drafts if requested."""

    first: Clock
    last: Clock
    steps: Steps = attrs.field(factory=Steps)
    draft_statistics: DraftStatistics = attrs.field(factory=DraftStatistics)
    drafts: Drafts = attrs.field(factory=Drafts)


@attrs.define(eq=False)
class Watch:
    """Watches the steps of a run, lap by lap. last: when the last step ended. trace: record the drafts too."""

    trace: bool = False
    last: Clock = Clock(0.0, 0.0)
    timelines: dict[Sequence, Timeline] = attrs.field(factory=dict)
    split: dict[str, float] = attrs.field(factory=dict)
    forwards: dict[str, int] = attrs.field(factory=dict)
    rows: dict[str, int] = attrs.field(factory=dict)
    drafting: dict[str, list[float]] = attrs.field(factory=dict)
    prompts: dict[Sequence, PromptSteps] = attrs.field(factory=dict)

    def clear(self) -> None:
        for table in (self.timelines, self.split, self.forwards, self.rows, self.drafting, self.prompts):
            table.clear()

    def look(self, step: Step) -> None:
        moment = clock_now()
        if any(part.seq in self.timelines for part in step.parts):
            self._account(step, moment.since(self.last).wall)
        for part in step.parts:
            if self.trace and part.seq not in self.timelines:
                add_prompt_step(self.prompts.setdefault(part.seq, PromptSteps()), part, step)
            if part.emitted:
                self._record_tokens(part, moment, step)
        self.last = moment

    def _account(self, step: Step, seconds: float) -> None:
        for label, spent in step.seconds.items():
            _add(self.split, label.partition(".")[0], spent)
        _add(self.split, "host", seconds - sum(step.seconds.values()))
        for counts, theirs in ((self.forwards, step.forwards), (self.rows, step.rows)):
            for name, n in theirs.items():
                _add(counts, name, n)
        pair = self.drafting.setdefault(str(drafting.depth(step)), [0, 0.0])
        pair[0] += 1
        pair[1] += drafting.method_seconds(step.seconds)

    def _record_tokens(self, part: Part, clock: Clock, step: Step) -> None:
        timeline = self.timelines.get(part.seq)
        if timeline is None:
            self.timelines[part.seq] = Timeline(clock, clock)
            return
        add_step(timeline.steps, part, clock.since(timeline.last).wall)
        timeline.draft_statistics.add(part)
        if self.trace:
            timeline.drafts.add(part, step)
        timeline.last = clock


def _add(table: dict[str, Any], name: str, more: float) -> None:
    table[name] = table.get(name, 0) + more


def warm_runs(runs: dict[str, Run], prompts: list[Prompt], settings: RequestSettings) -> None:
    """Run every contender once, briefly, without measuring."""
    for name, run in runs.items():
        warm_up(name, run, prompts, settings)


def warm_up(name: str, run: Run, prompts: list[Prompt], settings: RequestSettings) -> None:
    short = attrs.evolve(settings, max_tokens=min(settings.max_tokens, WARM_TOKENS))
    lap(name, run, Watch(), batches(prompts, settings.batch)[0], short, -1)


@attrs.frozen
class Slot:
    """A lap of the comparison: its number, its repeat, the batch of prompts by number, and the contender."""

    number: int
    repeat: int
    group: int
    contender: str


def schedule_laps(names: list[str], groups: int, repeats: int) -> list[Slot]:
    """All laps in order. Contenders take turns on each batch, in a rotating order."""
    order = [(r, g, name) for r in range(repeats) for g in range(groups) for name in rotate_names(names, g + r)]
    return [Slot(number, *slot) for number, slot in enumerate(order)]


def measure_laps(
    contenders: list[Contender],
    repeats: int,
    done: Collection[int] = (),
    on_lap: Callable[[Lap], None] = lambda lap: None,
) -> Iterator[Lap]:
    """Laps of all contenders on all batches of prompts; ``on_lap`` is called after each.

    done: numbers of laps that an interrupted comparison finished. Within a repeat the laps of contenders with a memory
    run again, unmeasured, so that later texts and drafts are an undisturbed comparison's.
    """
    groups = len(batches(contenders[0].setup.prompts, contenders[0].setup.request_settings.batch))
    slots = schedule_laps([c.name for c in contenders], groups, repeats)
    for repeat in range(repeats):
        own_slots = [slot for slot in slots if slot.repeat == repeat]
        left = {slot.contender for slot in own_slots if slot.number not in done}
        for slot, measured in _laps(own_slots, [c for c in contenders if c.name in left], done):
            if slot.number not in done:
                yield measured
                on_lap(measured)


def _laps(slots: list[Slot], contenders: list[Contender], done: Collection[int]) -> Iterator[tuple[Slot, Lap]]:
    """The laps of one repeat by these contenders, except finished laps that no memory between requests needs."""
    by_name = {c.name: c for c in contenders}
    groups = {c.name: batches(c.setup.prompts, c.setup.request_settings.batch) for c in contenders}
    with ExitStack() as runs:
        watched = {c.name: observe_run(runs.enter_context(c.make()), c.setup) for c in contenders}
        runs.enter_context(frozen_heap())
        for slot in (slot for slot in slots if slot.contender in by_name):
            contender = by_name[slot.contender]
            if slot.number not in done or contender.remembers:
                yield slot, lap_of(contender, *watched[slot.contender], groups[slot.contender][slot.group], slot)


def lap_of(contender: Contender, run: Run, watch: Watch, group: list[Prompt], slot: Slot) -> Lap:
    """A lap of the schedule, with memory, energy and the work of the whole machine during it."""
    meter = Meter.of(run.target.info.device)
    before = machine.moment()
    meter.begin()
    result = lap(contender.name, run, watch, group, contender.setup.request_settings, slot.repeat, contender.baseline)
    used, after = meter.end(), machine.moment()
    busy = None if before.busy is None or after.busy is None else after.busy - before.busy
    return attrs.evolve(
        result,
        number=slot.number,
        busy_seconds=busy,
        load_average=after.average,
        peak_bytes=used.peak_bytes,
        device_peak_bytes=used.device_peak_bytes,
        joules=used.joules,
    )


def observe_run(run: Run, baseline: Baseline | None = None) -> tuple[Run, Watch]:
    watch = Watch(trace=baseline is not None and baseline.request_settings.trace)
    run.observe(watch.look)
    return run, watch


def rotate_names(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def batches(prompts: list[Prompt], size: int) -> list[list[Prompt]]:
    """Groups of prompts that run together, each of one family and length."""
    families: dict[tuple[str, int | None], list[Prompt]] = {}
    for prompt in prompts:
        families.setdefault((prompt.family, length_of(prompt)), []).append(prompt)
    return [
        prompts_of_family[i : i + size]
        for prompts_of_family in families.values()
        for i in range(0, len(prompts_of_family), size)
    ]


def lap(
    name: str,
    run: Run,
    watch: Watch,
    group: list[Prompt],
    settings: RequestSettings,
    repeat: int,
    baseline: str = PLAIN,
) -> Lap:
    """Run all prompts of a group together until they finish; conversations turn by turn."""
    watch.clear()
    records: list[Record] = []
    spent = Clock(0.0, 0.0)
    answers: dict[str, list[str]] = {prompt.id: [] for prompt in group}
    for turn in range(max(map(turns_of, group))):
        talking = [prompt for prompt in group if turn < turns_of(prompt)]
        requests = [settings.request(p, next_prompt(p, answers[p.id], run.target), turn) for p in talking]
        began = clock_now()
        seqs = [run.submit(request) for request in requests]
        for _ in run:
            pass
        took = clock_now().since(began)
        spent = Clock(spent.wall + took.wall, spent.cpu + took.cpu)
        for prompt, seq in zip(talking, seqs, strict=True):
            result, timeline = run.take(seq), watch.timelines.get(seq)
            shared = Shared(name, baseline, repeat, turn, began, took.wall / len(talking))
            record = _record(shared, prompt, result, timeline, run.target, settings.trace)
            texts = pieces(result.tokens, run.target, seq.tokens[: seq.prompt_len]) if settings.trace else None
            records.append(attrs.evolve(record, prompt_steps=watch.prompts.get(seq), pieces=texts))
            answers[prompt.id].append(result.text)
    split, forwards, rows = dict(watch.split), dict(watch.forwards), dict(watch.rows)
    reports = run.stats.report()["reports"]
    return Lap(
        name,
        group[0].family,
        repeat,
        *spent,
        split,
        forwards,
        rows,
        records,
        reports=reports,
        drafting=dict(watch.drafting),
    )


class Shared(NamedTuple):
    """Values of all records of one turn of a lap. share: of each text in its seconds."""

    contender: str
    baseline: str
    repeat: int
    turn: int
    began: Clock
    share: float


def _record(
    shared: Shared, prompt: Prompt, result: Result, timeline: Timeline | None, target: Target, trace: bool
) -> Record:
    timeline = timeline or Timeline(shared.began, shared.began)
    decode = timeline.last.since(timeline.first)
    return Record(
        contender=shared.contender,
        prompt=prompt.id,
        family=prompt.family,
        repeat=shared.repeat,
        seed=result.seed,
        prompt_tokens=result.prompt_tokens,
        tokens=result.tokens,
        finish=result.finish_reason,
        first_seconds=timeline.first.since(shared.began).wall,
        decode_seconds=decode.wall,
        whole_seconds=shared.share,
        cpu_seconds=decode.cpu,
        steps=timeline.steps,
        draft_statistics=timeline.draft_statistics,
        text=result.text,
        baseline=shared.baseline,
        turn=shared.turn,
        reused=result.reused,
        trace=timeline.drafts.decode(target) if trace else None,
    )
