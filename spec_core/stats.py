"""From steps to statistics. A step is one verify forward of the generation phase in which the sequence decided.

The step that emits the first token of a prompt is none; a step without a draft counts with nothing drafted. Tokens
cut off behind a stop are neither emitted nor accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from spec_core.commit import drafted_and_accepted
from spec_core.hookspecs import hookimpl
from spec_core.sequence import Sequence
from spec_core.step import Part, Step
from spec_core.values import Rows


@attrs.define
class Tally:
    """Counts over steps. Lists are by position: index i is the (i+1)-th drafted token."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    drafts: int = 0
    depth: int = 0
    tv_spent: float = 0.0
    reached: list[int] = attrs.field(factory=list)
    tested: list[int] = attrs.field(factory=list)
    kept: list[int] = attrs.field(factory=list)
    by_method: dict[str, list[int]] = attrs.field(factory=dict)

    def add(self, part: Part) -> None:
        """One decided step of one sequence."""
        counts = drafted_and_accepted(part)
        self.steps += 1
        self.drafted += counts["nodes"]
        self.accepted += counts["accepted"]
        self.emitted += counts["emitted"]
        self.depth += counts["depth"]
        self.drafts += part.draft is not None
        self.tv_spent += part.raw.spent if part.raw else 0.0
        _count(self.reached, counts["depth"])
        _count(self.kept, counts["accepted"])
        _count(self.tested, counts["tested"])
        if part.source is not None:
            mine = self.by_method.setdefault(part.source, [0, 0, 0])
            mine[0] += 1
            mine[1] += counts["nodes"]
            mine[2] += counts["accepted"]

    def merge(self, other: Tally) -> None:
        for name in ("steps", "drafted", "accepted", "emitted", "drafts", "depth", "tv_spent"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("reached", "tested", "kept"):
            _add(getattr(self, name), getattr(other, name))
        for method, counts in other.by_method.items():
            _add(self.by_method.setdefault(method, [0, 0, 0]), counts)

    def report(self) -> dict[str, Any]:
        """Names and definitions as in docs/metrics.md; a ratio with nothing to divide by is None."""
        return {
            "steps": self.steps,
            "emitted": self.emitted,
            "drafts": self.drafts,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tau_pooled": _ratio(self.emitted, self.steps),
            "accepted_per_step": _ratio(self.accepted, self.steps),
            "draft_acceptance": _ratio(self.accepted, self.drafted),
            "mean_draft_length": _ratio(self.depth, self.drafts),
            "tv_spent": self.tv_spent,
            "marginal": [_ratio(k, r) for k, r in zip(self.kept, self.reached, strict=False)],
            "conditional": [_ratio(k, t) for k, t in zip(self.kept, self.tested, strict=False)],
            "methods": {
                name: {"drafts": d, "drafted": n, "accepted": a, "draft_acceptance": _ratio(a, n)}
                for name, (d, n, a) in self.by_method.items()
            },
        }


def _count(counts: list[int], n: int) -> None:
    """One more for each of the first n positions."""
    counts.extend([0] * (n - len(counts)))
    for i in range(n):
        counts[i] += 1


def _add(counts: list[int], more: list[int]) -> None:
    counts.extend([0] * (len(more) - len(counts)))
    for i, n in enumerate(more):
        counts[i] += n


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


@attrs.define(eq=False)
class Stats:
    """Statistics of a run. A plugin like any other: it wraps ``process`` and reads the step afterwards."""

    pooled: Tally = attrs.field(factory=Tally)
    running: dict[Sequence, Tally] = attrs.field(factory=dict)
    requests: int = 0
    tau_sum: float = 0.0
    tau_count: int = 0
    seconds: dict[str, float] = attrs.field(factory=dict)
    forwards: dict[str, int] = attrs.field(factory=dict)
    rows: dict[str, int] = attrs.field(factory=dict)
    switched_off: dict[str, str] = attrs.field(factory=dict)
    lossy: str | None = None
    exact: str | None = None

    @hookimpl(wrapper=True)
    def process(self, rows: Rows) -> Any:
        result = yield
        self.add(rows.step)
        return result

    def add(self, step: Step) -> None:
        for part in step.parts:
            if part.emitted and part.seq.t - len(part.emitted) > part.seq.offset:
                self.running.setdefault(part.seq, Tally()).add(part)
        for name, seconds in step.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        for mine, theirs in ((self.forwards, step.forwards), (self.rows, step.rows)):
            for name, n in theirs.items():
                mine[name] = mine.get(name, 0) + n

    def close(self, seq: Sequence) -> Tally:
        """Fold a finished sequence into the totals; its own tally is returned."""
        tally = self.running.pop(seq, None) or Tally()
        self.pooled.merge(tally)
        self.requests += 1
        if tally.steps:
            self.tau_sum += tally.emitted / tally.steps
            self.tau_count += 1
        return tally

    def report(self) -> dict[str, Any]:
        """The whole run: pooled counts, the mean over requests, time split and forwards."""
        return {
            "requests": self.requests,
            **self.pooled.report(),
            "tau_macro": _ratio(self.tau_sum, self.tau_count),
            "seconds": dict(self.seconds),
            "forwards": dict(self.forwards),
            "rows": dict(self.rows),
            "switched_off": dict(self.switched_off),
            "lossy": self.lossy,
            "exact": self.exact,
        }


@attrs.define(eq=False)
class Observer:
    """Shows every finished step to a function: for recordings and measurements."""

    look: Callable[[Step], None]

    @hookimpl(wrapper=True)
    def process(self, rows: Rows) -> Any:
        result = yield
        self.look(rows.step)
        return result
