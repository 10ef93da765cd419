"""Counters of the server while requests run. Written by the engine's thread alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from spec_core import Part, Result, Step
from spec_core.toolkit import draft_counts
from spec_serve.job import Job

REASONS = ("stop", "complete", "length", "cancelled", "deadline", "error")
"""Why a text ends."""


@attrs.define
class Methods:
    """Counts of one method. reached, kept: drafts that have, and whose verdict keeps, position i."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    reached: Counter[int] = attrs.field(factory=Counter)
    kept: Counter[int] = attrs.field(factory=Counter)


@attrs.define(eq=False)
class Counters:
    """Totals since the start."""

    requests: Counter[str] = attrs.field(factory=lambda: Counter(dict.fromkeys(REASONS, 0)))
    """Ended texts by finish reason."""
    steps: int = 0
    """Verdicts of all texts."""
    forwards: int = 0
    """Forwards of the target."""
    parts: int = 0
    """Texts in these forwards."""
    longest: int = 0
    """Most rows of a text."""
    prompt: int = 0
    """Prompt tokens of texts that began."""
    cached: int = 0
    """Prompt tokens that were reused."""
    generated: int = 0
    prompt_seconds: float = 0.0
    """Seconds from the first forward of a text to its first token."""
    predicted_seconds: float = 0.0
    """Seconds from the first token of a text to its end."""
    methods: dict[str, Methods] = attrs.field(factory=dict)
    observers: list[Callable[[str, float], None]] = attrs.field(factory=list)
    """Functions that are called with the name of a time and its seconds."""

    def add_methods(self, names: Iterable[str], length: int) -> None:
        """Begin the counts of methods at 0. length: longest draft."""
        zeros = dict.fromkeys(range(length), 0)
        for name in names:
            self.methods[name] = Methods(reached=Counter(zeros), kept=Counter(zeros))

    def began(self, job: Job) -> None:
        if job.seq is not None:
            self.prompt += job.seq.prompt_len
            self.cached += job.seq.reused

    def first_token(self, job: Job) -> None:
        self.prompt_seconds += job.first - job.begun
        self._observe("time_to_first_token_seconds", job.first - job.asked)

    def forward(self, step: Step) -> None:
        """One forward of the target."""
        self.forwards += 1
        self.parts += len(step.parts)
        self.longest = max(self.longest, max((part.seq.evaluated for part in step.parts), default=0))

    def step(self, job: Job, part: Part) -> None:
        """A part of a decided step."""
        if part.decides:
            self.steps += 1
        if part.draft is None:
            return
        depths, path = part.draft.depths, part.full_verdict.path if part.full_verdict else ()
        kept = path[: draft_counts(part)["accepted"]]
        for piece in part.pieces:
            counts, own = self.methods.setdefault(piece.source, Methods()), piece.accepted_in(kept)
            counts.drafts += 1
            counts.drafted += len(piece.draft)
            counts.accepted += len(own)
            job.proposed[piece.source] += len(piece.draft)
            job.kept[piece.source] += len(own)
            counts.reached.update({depths[piece.first + i] - 1 for i in range(len(piece.draft))})
            counts.kept.update(depths[piece.first + i] - 1 for i in own)

    def record_result(self, job: Job, result: Result) -> None:
        self.record_end(job, "deadline" if job.expired else result.finish_reason)
        if job.first:
            self.predicted_seconds += job.last - job.first
            if len(result.tokens) > 1:
                self._observe("time_per_output_token_seconds", (job.last - job.first) / (len(result.tokens) - 1))

    def record_end(self, job: Job, reason: str) -> None:
        self.requests[reason] += 1
        self._observe("request_seconds", (job.last or job.asked) - job.asked)

    def _observe(self, name: str, seconds: float) -> None:
        for observe in self.observers:
            observe(name, seconds)
