"""``best``: the methods that fit a model, without a choice by the user, together with the controller.

In this order: the model's own next-token layer; a drafter that belongs to the model or lies beside its file; a
published one that is in the hub's cache; else lookup in the text. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from spec_best.drafters import Drafter, drafters_beside, drafters_in_cache, own_drafters
from spec_best.published import describe_published
from spec_core import MethodChoice, Target

OWN_LAYER = "mtp"
LOOKUP = ("suffix", "ngram")
CONTROL = "auto"
Misfit = Callable[[Any], str | None]
"""Receives a method as users name it; returns why the target does not run it, None if it does."""


def choose(target: Target, misfit: Misfit) -> MethodChoice:
    """Stands for the first drafter that fits the model, else for lookup in the text; with the controller."""
    if misfit(OWN_LAYER) is None:
        return _choice([OWN_LAYER], "the model's own next-token layer", [], target)
    refused: list[str] = []
    for drafter in _drafters(target):
        reason = misfit(drafter.method)
        if reason is None:
            return _choice([drafter.method], drafter.where, refused, target)
        refused.append(f"{drafter.title} does not fit: {reason.splitlines()[0]}")
    return _choice(list(LOOKUP), "lookup in the text, as no drafter is there", refused, target)


def _drafters(target: Target) -> Iterator[Drafter]:
    """Drafters that may fit, in the order of preference."""
    yield from own_drafters(target.info)
    yield from drafters_beside(target.info)
    yield from drafters_in_cache(target.info)


def _choice(methods: list[Any], why: str, refused: list[str], target: Target) -> MethodChoice:
    names = " and ".join(method if isinstance(method, str) else method[0] for method in methods)
    chosen = {name for method in methods if not isinstance(method, str) for name in method[1].values()}
    parts = [f"best: {names}, {why}; control {CONTROL}", *refused, *describe_published(target.info, chosen)]
    return MethodChoice(methods, CONTROL, "; ".join(parts))
