"""What a method would gain on this machine: measured costs of steps and drafts, and an acceptance.

The one code by which ``--method best`` chooses and ``spec doctor`` reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import attrs

from spec_core import Request, Run, Sampling, Target
from spec_costs import drafting, steps
from spec_costs.bounds import constant_length
from spec_costs.curve import Curve
from spec_costs.file import Costs, DraftCost, StepCost, machine

ROWS = (1, 2, 4, 8)
"""Rows of the steps that are timed."""
DEPTH, REPEATS, LONGEST, TOKENS = 64, 3, 8, 24
"""Prompt tokens; repetitions of a step; the longest draft; tokens of a text that shows what drafts take."""


@attrs.frozen
class Gain:
    """speedup: over plain decoding, with drafts of the best length, ``drafts`` tokens; 1 and 0 if none pays.

    step, draft: seconds of a plain step and of drafting one token; rows: seconds that one more row adds to a step.
    """

    speedup: float
    drafts: int
    step: float
    draft: float
    rows: float


def measure_costs(target: Target, methods: Iterable[tuple[str, Any]], ends_at: float) -> Costs:
    """Time steps, then the drafts of each (name, method) while there is time."""
    step_costs = [
        StepCost(1, DEPTH, rows, median(timing.step for timing in timings))
        for rows, timings in steps.measure_steps(target, ROWS, DEPTH, 1, REPEATS, Sampling(temperature=0.0)).items()
    ]
    draft_costs: list[DraftCost] = []
    for name, method in methods:
        if perf_counter() < ends_at:
            draft_costs += _draft_costs(target, name, method)
    return Costs(machine(target), step_costs, draft_costs)


def _draft_costs(target: Target, name: str, method: Any) -> list[DraftCost]:
    """Time the drafts of a method, in two texts; the first one warms it up."""
    make: Callable[[Any], Run] = lambda control: Run(
        target, [("lengths", control), method], draft_max=LONGEST, reuse=False, max_sequences=1
    )
    prompt = [1 + i % (target.info.vocab - 1) for i in range(DEPTH)]
    requests = [Request(prompt, max_tokens=TOKENS, seed=seed, ignore_eos=True) for seed in (0, 1)]
    seconds = drafting.measure_drafting(make, requests, LONGEST, REPEATS)
    return [DraftCost(name, length, median(each), len(each)) for length, each in seconds.items() if each]


def gain_of(costs: Costs, method: str, conditional: Sequence[float]) -> Gain | None:
    """The gain of a method; None if its drafts were not measured. conditional: acceptance of each position if all
    before it were accepted."""
    drafts, step = costs.drafts(method), step_curve(costs)
    if drafts is None:
        return None
    bound = constant_length(step, conditional[:LONGEST], drafts)
    return Gain(bound.speedup, bound.drafts, step(1), drafts(1), (step(ROWS[-1]) - step(1)) / (ROWS[-1] - 1))


def step_curve(costs: Costs) -> Curve:
    """Seconds of a step by rows."""
    return costs.curves(1).at(costs.steps[0].depth)
