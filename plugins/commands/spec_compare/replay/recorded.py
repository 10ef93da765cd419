"""The steps of a contender's run, put together from the traces of its texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from spec_compare.records.record import Lap, PromptSteps, Record, Trace
from spec_core import Draft, Limit, Sampling, Sequence
from spec_core.errors import UsageError

AGAIN = "record the comparison again with --trace"


@attrs.frozen(eq=False)
class RecordedText:
    """A sequence of the recorded run: its request's number, and the tokens of its output."""

    number: int
    prompt_tokens: int
    tokens: list[int]
    name: str


@attrs.frozen(eq=False)
class RecordedPart:
    """A sequence's share of a recorded step."""

    text: RecordedText
    start: int
    rows: int
    """Rows without the draft's."""
    output: int
    """Tokens of the text before the step, 0 for a step of the prompt."""
    budget: int = 0
    draft: Draft | None = None
    sources: list[str] = attrs.field(factory=list)
    """Method of each drafted token."""
    pieces: list[int] = attrs.field(factory=list)
    """Number of tokens of each piece."""
    uncut: list[int] = attrs.field(factory=list)
    """Indices of the accepted tokens."""
    emitted: int = 0
    """Number of tokens that followed."""
    limits: Mapping[str, Limit] | None = None
    """Limits of a plan, by method."""
    seconds: float = 0.0
    """Seconds since the end of the step before."""

    @property
    def drafted(self) -> int:
        return 0 if self.draft is None else len(self.draft)


@attrs.frozen(eq=False)
class RecordedStep:
    """before: seconds of the whole step before; None if there was none. seconds: by hook and plugin, and of verify."""

    number: int
    before: float | None
    seconds: dict[str, float]
    priced: list[str]
    parts: list[RecordedPart]

    @property
    def drafted(self) -> int:
        return sum(part.drafted for part in self.parts)

    @property
    def generates(self) -> bool:
        """Whether it is a step of texts that have begun, without rows of a prompt."""
        return all(part.output for part in self.parts)


def steps_of(laps: list[Lap]) -> list[RecordedStep]:
    """The steps of one contender in one repeat, in order. Raises UsageError for records without a trace."""
    steps: dict[int, RecordedStep] = {}
    for number, record in enumerate(record for lap in laps for record in lap.records):
        if record.trace is None or record.prompt_steps is None:
            raise UsageError(f"the record of {record.prompt!r} by {record.contender} has no trace", hint=AGAIN)
        try:
            for step in _steps(record, record.trace, record.prompt_steps, number):
                steps.setdefault(step.number, step)
                if steps[step.number] is not step:
                    steps[step.number].parts.extend(step.parts)
        except (ValueError, TypeError, IndexError) as error:
            raise UsageError(f"the trace of {record.prompt!r} by {record.contender}: {error}", hint=AGAIN) from error
    for step in steps.values():
        step.parts.sort(key=lambda part: (part.output == 0, part.text.number))  # the order of the batch
    return [steps[number] for number in sorted(steps)]


def _steps(record: Record, trace: Trace, prompt: PromptSteps, number: int) -> Iterator[RecordedStep]:
    """The record's own part of every step that it took part in."""
    text = RecordedText(number, record.prompt_tokens, record.tokens, record.prompt)
    for step, before, start, rows, seconds in zip(
        prompt.step, prompt.before, prompt.start, prompt.pending, prompt.seconds, strict=True
    ):
        first = start + rows == record.prompt_tokens
        yield RecordedStep(step, before, seconds, [], [RecordedPart(text, start, rows, 0, emitted=int(first))])
    output = 1
    for i, emitted in enumerate(record.steps.emitted):
        part = _part(record, trace, i, text, output)
        yield RecordedStep(trace.step[i], trace.before[i], trace.seconds[i], trace.priced[i], [part])
        output += emitted


def _part(record: Record, trace: Trace, i: int, text: RecordedText, output: int) -> RecordedPart:
    draft = Draft(trace.ids[i], None, None, trace.parents[i], trace.confidence[i]) if trace.ids[i] else None
    _check(trace, i, draft)
    return RecordedPart(
        text=text,
        start=trace.start[i],
        rows=trace.pending[i],
        output=output,
        budget=trace.budget[i],
        draft=draft,
        sources=trace.sources[i],
        pieces=trace.pieces[i],
        uncut=trace.uncut[i],
        emitted=record.steps.emitted[i],
        limits={name: Limit(n, trace.prices[i].get(name)) for name, n in trace.limits[i].items()} or None,
        seconds=record.steps.seconds[i],
    )


def _check(trace: Trace, i: int, draft: Draft | None) -> None:
    """Raise ValueError for columns that contradict each other."""
    drafted = 0 if draft is None else len(draft)
    if len(trace.sources[i]) != drafted or sum(trace.pieces[i]) != drafted or min(trace.pieces[i], default=1) < 1:
        raise ValueError(f"step {trace.step[i]} has {drafted} drafted tokens, its sources or pieces others")
    parents = trace.parents[i]
    if parents is not None and (len(parents) != drafted or not all(-1 <= p < at for at, p in enumerate(parents))):
        raise ValueError(f"step {trace.step[i]} has drafted tokens that follow none before them")
    last = -1
    for at in trace.uncut[i]:
        parent = draft.parents[at] if draft is not None and draft.parents is not None and at < drafted else last
        if not last < at < drafted or parent != last or (draft.parents is None and at != last + 1):
            raise ValueError(f"step {trace.step[i]} has an accepted path that its draft does not have")
        last = at


def sequence(text: RecordedText, output: int) -> Sequence:
    """The sequence before a step. The ids of the prompt are not recorded: they are 0."""
    tokens = [0] * text.prompt_tokens + text.tokens[:output]
    sampling = Sampling()
    stop: Any = None  # no policy reads it: texts end where they ended
    return Sequence(tokens, text.prompt_tokens, len(text.tokens), sampling, stop, name=text.name, number=text.number)
