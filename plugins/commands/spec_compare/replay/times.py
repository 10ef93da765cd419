"""Times of steps, by the tokens of their drafts: medians, which a disturbance of a few steps does not change."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

import attrs
from spec_costs.curve import Curve

from spec_compare.replay.recorded import RecordedStep

Curves = dict[int, Curve]
"""{number of sequences: seconds by drafted tokens, linear between the recorded numbers}."""


@attrs.frozen(eq=False)
class StepTimes:
    """Times of steps in which every sequence generates.

    whole: from the end of a step to the end of the next. verify: of the target's forward. plain: of plain decoding,
    from end to end.
    """

    whole: Curves
    verify: Curves
    plain: Curves


def step_times(steps: Iterable[RecordedStep], plain: Iterable[RecordedStep]) -> StepTimes:
    """steps: of a contender. Where none of them was without a draft, the steps of its plain decoding count as such."""
    drafted_steps, theirs = by_drafted(steps), by_drafted(plain)
    both = {
        batch: {**theirs.get(batch, {}), **drafted_steps.get(batch, {})}
        for batch in drafted_steps.keys() | theirs.keys()
    }
    return StepTimes(_curves(both, _whole), _curves(both, _verify), _curves(theirs, _whole))


def by_drafted(steps: Iterable[RecordedStep]) -> dict[int, dict[int, list[RecordedStep]]]:
    """Steps by number of sequences and of drafted tokens."""
    grouped: dict[int, dict[int, list[RecordedStep]]] = {}
    for step in steps:
        if step.generates:
            grouped.setdefault(len(step.parts), {}).setdefault(step.drafted, []).append(step)
    return grouped


def _whole(step: RecordedStep) -> float:
    return step.parts[0].seconds


def _verify(step: RecordedStep) -> float:
    return step.seconds.get("verify", 0.0)


def _curves(grouped: dict[int, dict[int, list[RecordedStep]]], seconds: Callable[[RecordedStep], float]) -> Curves:
    return {
        batch: Curve({drafted: statistics.median(map(seconds, steps)) for drafted, steps in steps_by_drafted.items()})
        for batch, steps_by_drafted in grouped.items()
    }
