"""Upper bounds of the speedup over plain decoding, from the costs of steps.

T(n) is a step with n rows, Td(k) what a method adds for a draft of k tokens, both in seconds. E(k) is the expected
number of tokens of a step whose draft has k tokens, the target's own token included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

Cost = Callable[[int], float]
"""Seconds by number of rows, or by number of drafted tokens."""
PRECISE = 60
"""Halvings of the interval in which a break-even acceptance is searched: more than a float64 resolves."""


def free_cost(k: int) -> float:
    """The cost of a drafter that takes no time."""
    return 0.0


@attrs.frozen
class Bound:
    """speedup: over plain decoding, at least 1. drafts: the draft length that reaches it; 0 is plain decoding."""

    speedup: float
    drafts: int


def perfect_bound(step: Cost, draft_max: int, drafting: Cost = free_cost) -> Bound:
    """The bound if every draft is accepted: max over k of (k + 1) T(1) / (Td(k) + T(k + 1))."""
    return constant_length(step, [1.0] * draft_max, drafting)


def constant_length(step: Cost, conditional: Sequence[float], drafting: Cost = free_cost, share: float = 1.0) -> Bound:
    """The bound for drafts of one length k: max over k of E(k) T(1) / (Td(k) + T(k + 1)).

    conditional: acceptance of each position if all positions before it were accepted; k is at most their number.
    share: of the steps that have a draft; the others emit one token for T(1) + Td(0).
    """
    best, expected, survival = Bound(1.0, 0), 1.0, 1.0
    for k, rate in enumerate(conditional, 1):
        survival *= rate
        expected += survival
        seconds = share * (drafting(k) + step(k + 1)) + (1 - share) * (drafting(0) + step(1))
        speedup = (share * expected + 1 - share) * step(1) / seconds
        if speedup > best.speedup:
            best = Bound(speedup, k)
    return best


def as_drafted(step: Cost, steps: Iterable[tuple[int, int, int]], drafting: Cost = free_cost) -> float | None:
    """The speedup of these steps if each takes its usual time: sum of tokens T(1) / sum of Td(k) + T(n + 1).

    steps: (drafted tokens n, draft length k, emitted tokens) of each step; n and k differ for trees, and are 0 without
    a draft. None without a step.
    """
    tokens = seconds = 0.0
    for drafted, depth, emitted in steps:
        tokens += emitted
        seconds += step(drafted + 1) + drafting(depth)
    return tokens * step(1) / seconds if seconds else None


def break_even(step: Cost, k: int, drafting: Cost = free_cost) -> float | None:
    """The acceptance of every position at which drafts of k tokens cost as much as they save.

    None if drafts of this length lose even if all of them are accepted.
    """
    needed = (drafting(k) + step(k + 1)) / step(1)
    if needed > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(PRECISE):
        middle = (low + high) / 2
        low, high = (low, middle) if tokens(middle, k) >= needed else (middle, high)
    return high if needed > 1 else 0.0


def tokens(acceptance: float, k: int) -> float:
    """E(k) if every position has the same acceptance."""
    return sum(acceptance**i for i in range(k + 1))
