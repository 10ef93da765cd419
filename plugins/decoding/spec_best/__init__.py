"""``best``: the methods that are expected to be fastest for a model, without a choice by the user.

Lookup in the text is always among them. Of the drafters that fit, one that belongs to the model, lies in its folder
or is in the hub's cache, the fastest one follows it: by measured costs, or by the order of ``PREFERENCE``. Nothing is
downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spec_best.costs import NotMeasured, costs_of
from spec_best.drafters import Drafter, drafters_beside, drafters_in_cache, own_drafters, own_layer, preference
from spec_best.expected import expected_lookup_speedup, expected_speedup
from spec_best.published import describe_published
from spec_core import MethodChoice, Target

LOOKUP = "ngram"
CONTROL = "auto"
Misfit = Callable[[Any], str | None]
"""Receives a method as users name it; returns why the target does not run it, None if it does."""


def choose_methods(target: Target, misfit: Misfit) -> MethodChoice:
    """Lookup, and the drafter that is expected to be the fastest, if it is faster than lookup."""
    fitting, refused = _fitting_drafters(target, misfit)
    if not fitting:
        return _choice([], "lookup in the text, as no drafter is there", refused, target)
    try:
        costs, origin = costs_of(target.info, fitting)
    except NotMeasured as reason:
        why = f"{fitting[0].where}; costs were not measured: {reason}"
        return _choice(fitting[:1], why, refused, target)
    lookup = expected_lookup_speedup(costs)
    speedups = {drafter.name: expected_speedup(costs, drafter.name) or 0.0 for drafter in fitting}
    best = max(fitting, key=lambda drafter: speedups[drafter.name])
    listed = ", ".join(f"{name} {speedup:.2f}" for name, speedup in {LOOKUP: lookup, **speedups}.items())
    why = f"expected times plain decoding's speed: {listed}, by costs {origin}"
    if speedups[best.name] <= lookup:
        return _choice([], f"lookup in the text; {why}", refused, target)
    return _choice([best], f"{best.where}; {why}", refused, target)


def _fitting_drafters(target: Target, misfit: Misfit) -> tuple[list[Drafter], list[str]]:
    """Drafters that the methods' own checks accept, the first of each method, and why others were refused."""
    fitting: dict[str, Drafter] = {}
    refused: list[str] = []
    for drafter in _drafters(target):
        if drafter.name in fitting:
            continue
        if (reason := misfit(drafter.method)) is None:
            fitting[drafter.name] = drafter
        elif drafter.file:
            refused.append(f"{drafter.title} does not fit: {reason.splitlines()[0]}")
    return sorted(fitting.values(), key=lambda drafter: preference(drafter.name)), refused


def _drafters(target: Target) -> Iterator[Drafter]:
    """Drafters that may fit: of one method the first is taken."""
    yield own_layer()
    yield from own_drafters(target.info)
    yield from drafters_beside(target.info)
    yield from drafters_in_cache(target.info)


def _choice(drafters: list[Drafter], why: str, refused: list[str], target: Target) -> MethodChoice:
    methods: list[Any] = [LOOKUP, *(drafter.method for drafter in drafters)]
    names = " and ".join([LOOKUP, *(drafter.name for drafter in drafters)])
    parts = [f"best: {names}, {why}; control {CONTROL}", *refused]
    parts += describe_published(target.info, {drafter.file for drafter in drafters})
    return MethodChoice(methods, CONTROL, "; ".join(parts))
