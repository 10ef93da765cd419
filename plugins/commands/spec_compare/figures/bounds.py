"""Bounds of the speedup of a contender: the machine, its drafts' own cost, and their acceptance."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

import attrs
from spec_costs.bounds import Bound, Cost, as_drafted, constant_length, perfect_bound
from spec_costs.curve import Curve, Curves

from spec_compare.records.record import Lap, Record
from spec_core.toolkit import DraftStatistics

SURE = 30
"""Min number of tests of a position: the acceptance of fewer says little about the positions after it."""


@attrs.frozen
class Bounds:
    """Upper bounds of a speedup. hardware: of a free drafter whose drafts are all accepted. drafter: the same with this
    drafter's cost, up to its longest draft; acceptance: with its cost and its measured acceptance. drafts: the draft
    length that reaches ``hardware``. drafter, acceptance: None if it drafted nothing.
    """

    hardware: float
    drafts: int
    drafter: float | None
    acceptance: float | None


def bounds(
    laps: Sequence[Lap], plain: Sequence[Lap], draft_statistics: DraftStatistics, curves: Curves, draft_max: int
) -> Bounds:
    """Bounds of the laps of one contender.

    plain: laps of plain decoding on the same prompts. draft_statistics: pooled over its records. draft_max: longest
    draft that a run allows.
    """
    records = [record for lap in laps for record in lap.records]
    step = curves.at(depth(records))
    best = perfect_bound(step, draft_max)
    if not draft_statistics.drafts:
        return Bounds(best.speedup, best.drafts, None, None)
    added = drafting_curve(laps, step(1) / (seconds_per_step(plain) or step(1)))
    return Bounds(
        best.speedup,
        best.drafts,
        perfect_bound(step, max(draft_statistics.reached, default=0), added).speedup,
        acceptance_bound(step, draft_statistics, records, added),
    )


def depth(records: Iterable[Record]) -> float:
    """Mean number of cached rows of a step."""
    return statistics.fmean(record.prompt_tokens + len(record.tokens) / 2 for record in records)


def seconds_per_step(laps: Iterable[Lap]) -> float:
    """Median over the steps, 0 without a step."""
    seconds = [s for lap in laps for record in lap.records for s in record.steps.seconds]
    return statistics.median(seconds) if seconds else 0.0


def drafting_curve(laps: Iterable[Lap], speed: float) -> Curve:
    """Seconds that the methods added to a step, by the length of its longest draft.

    Medians over the laps, each weighted by its steps: a disturbed lap does not count.
    speed: of the machine during the laps, over that while the costs of steps were measured.
    """
    costs: dict[int, list[tuple[float, float]]] = {}
    for lap in laps:
        for length, (steps, seconds) in lap.drafting.items():
            costs.setdefault(int(length), []).append((seconds / steps, steps))
    return Curve({0: 0.0} | {length: speed * weighted_median(pairs) for length, pairs in costs.items()})


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The smallest value at which half of the weight is reached. pairs: (value, weight)."""
    ordered = sorted(pairs)
    half, reached = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return 0.0


def acceptance_bound(step: Cost, draft_statistics: DraftStatistics, records: list[Record], drafting: Cost) -> float:
    """The larger of two speedups: with the best constant draft length in the steps that had a draft, and with the
    lengths as they were drafted.

    A method that chooses its lengths well exceeds every constant length. Only the second is defined for trees.
    """
    lengths = as_drafted(step, _steps(records), drafting) or 1.0
    return max(
        lengths,
        _constant(step, draft_statistics, drafting).speedup
        if draft_statistics.drafted == draft_statistics.depth
        else 1.0,
    )


def _constant(step: Cost, draft_statistics: DraftStatistics, drafting: Cost) -> Bound:
    """Bound of a constant acceptance, up to the last position that was tested often enough."""
    _, counts, right = draft_statistics.positions
    sure = []
    for kept, tested in zip(right, counts, strict=True):
        if tested < SURE:
            break
        sure.append(kept / tested)
    return constant_length(step, sure, drafting, draft_statistics.drafts / draft_statistics.steps)


def _steps(records: Iterable[Record]) -> Iterator[tuple[int, int, int]]:
    for record in records:
        steps = record.steps
        yield from zip(steps.drafted, steps.depth, steps.emitted, strict=True)
