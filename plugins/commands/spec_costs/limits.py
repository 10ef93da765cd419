"""Limits by costs before any text is seen: the speedup of a perfect drafter, and what acceptance a draft must have."""

from __future__ import annotations

import attrs

from spec_costs.bounds import Bound, Cost, break_even, free_cost, perfect_bound
from spec_costs.drafting import LENGTHS


@attrs.frozen
class Limits:
    """bound: with every draft accepted. break_even: {draft length: acceptance at which it costs what it saves}.

    break_even has None for a draft that loses even if it is accepted. batch, depth: of the costs. method: whose drafts
    they are; None for drafts that cost nothing.
    """

    method: str | None
    batch: int
    depth: int
    bound: Bound
    break_even: dict[int, float | None]


def limits(
    step: Cost, longest: int, batch: int, depth: int, method: str | None = None, drafting: Cost = free_cost
) -> Limits:
    """longest: max length of a draft."""
    lengths = [k for k in LENGTHS if k <= longest]
    even = {k: break_even(step, k, drafting) for k in lengths}
    return Limits(method, batch, depth, perfect_bound(step, longest, drafting), even)


def sentence(limits: Limits) -> str:
    """One line for people."""
    whose = "free drafts" if limits.method is None else limits.method
    bound = limits.bound
    best = "no draft pays off, even if all are accepted"
    if bound.drafts:
        best = f"at most {bound.speedup:.2f}×, if every step drafts {bound.drafts} tokens and all are accepted"
    even = ", ".join(f"{k}: {'never' if a is None else f'{a:.2f}'}" for k, a in limits.break_even.items())
    return f"{whose}: {best}; break-even acceptance by draft length {even}"
