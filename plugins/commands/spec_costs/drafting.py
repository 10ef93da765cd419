"""Time that a method adds to a step: its drafting, and its work on the committed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import attrs

from spec_core import Compat, DraftPlan, DraftStep, Limit, Request, Run, Step, hookimpl

ADDED = ("draft", "process")
"""Hooks whose time is the method's. Rolling the target back also happens in the steps of a cost curve."""
LENGTHS = (1, 2, 4, 8, 16)
"""Draft lengths that are requested, up to the longest draft of the run."""


def method_seconds(seconds: Mapping[str, float]) -> float:
    """Seconds that the methods of a step added. seconds: by hook and plugin, as in ``Step.seconds``."""
    return sum(spent for label, spent in seconds.items() if label.partition(".")[0] in ADDED)


def depth(step: Step) -> int:
    """Length of the longest draft of a step, 0 without one."""
    return max((part.draft.depth for part in step.parts if part.draft is not None), default=0)


@attrs.define(eq=False)
class Lengths:
    """A controller that limits the drafts of one step after the other to these lengths, alternating."""

    lengths: Sequence[int]
    upcoming: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.upcoming = cycle(self.lengths)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        longest = next(self.upcoming)
        step.plan(DraftPlan(dict.fromkeys(step.methods, Limit(longest))))


def measure_drafting(
    make: Callable[[Lengths], Run], requests: Iterable[Request], longest: int, repeats: int
) -> dict[int, list[float]]:
    """{draft length: seconds that the method added, per step}. Length 0: steps in which it found no draft.

    make: a run with this controller before the method. requests: texts to generate, until each of LENGTHS up to
    ``longest`` was drafted ``repeats`` times. Steps that emit the first token of a text are not counted, nor are steps
    of the first text, the warm-up.
    """
    lengths = [n for n in LENGTHS if n <= longest]
    seconds: dict[int, list[float]] = {}
    warm = False

    def look(step: Step) -> None:
        if warm and all(part.seq.output_position > len(part.emitted) for part in step.parts):
            seconds.setdefault(depth(step), []).append(method_seconds(step.seconds))

    with make(Lengths(lengths)) as run:
        run.observe(look)
        for request in requests:
            _generate(run, request)
            warm = True
            if all(len(seconds.get(n, ())) >= repeats for n in lengths):
                break
    return dict(sorted(seconds.items()))


def _generate(run: Run, request: Request) -> None:
    seq = run.submit(request)
    for _ in run:
        pass
    run.take(seq)
