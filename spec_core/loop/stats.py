"""From steps to statistics. A step is one verify forward of the generation phase in which the sequence decided.

The step that emits the first token after a prompt is not counted; a step without a draft counts with 0 drafted tokens.
Tokens cut off after a stop are neither emitted nor accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.toolkit.tally import DraftStatistics, ratio


@attrs.define(eq=False)
class Stats:
    """Statistics of a run: every step is added once, after its verdicts."""

    pooled: DraftStatistics = attrs.field(factory=DraftStatistics)
    running: dict[Sequence, DraftStatistics] = attrs.field(factory=dict)
    requests: int = 0
    ratio_sum: float = 0.0
    ratio_count: int = 0
    seconds: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    forwards: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    rows: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    switched_off: dict[str, str] = attrs.field(factory=dict)
    lossy: str | None = None
    steers: str | None = None
    exact: str | None = None
    reports: Mapping[str, Callable[[], Mapping[str, Any]]] = attrs.field(factory=dict)

    def add(self, step: Step) -> None:
        for part in step.parts:
            if part.emitted and len(part.seq.tokens) - len(part.emitted) > part.seq.prompt_len:
                tally = self.running.get(part.seq)
                if tally is None:
                    tally = self.running[part.seq] = DraftStatistics()
                tally.add(part)
        for name, seconds in step.seconds.items():
            self.seconds[name] += seconds
        for totals, counts in ((self.forwards, step.forwards), (self.rows, step.rows)):
            for name, n in counts.items():
                totals[name] += n

    def close(self, seq: Sequence) -> DraftStatistics:
        """Add a finished sequence to the totals; returns its own tally."""
        tally = self.running.pop(seq, None) or DraftStatistics()
        self.pooled.merge(tally)
        self.requests += 1
        if tally.steps:
            self.ratio_sum += tally.emitted / tally.steps
            self.ratio_count += 1
        return tally

    def report(self) -> dict[str, Any]:
        """Statistics of the whole run: pooled counts, the mean over requests, time per hook and forwards."""
        return {
            "requests": self.requests,
            **self.pooled.report(),
            "tokens_per_step_macro": ratio(self.ratio_sum, self.ratio_count),
            "seconds": dict(self.seconds),
            "forwards": dict(self.forwards),
            "rows": dict(self.rows),
            "switched_off": dict(self.switched_off),
            "lossy": self.lossy,
            "steers": self.steers,
            "exact": self.exact,
            "reports": {name: read_report(report) for name, report in self.reports.items()},
        }


def read_report(report: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What a plugin reports about a run. One that raises does not take the other statistics with it."""
    try:
        return dict(report())
    except Exception as error:  # a plugin may raise anything
        return {"summary": f"its report failed: {type(error).__name__}: {error}"}
