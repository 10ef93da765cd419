"""A pacer that knows what steps cost, and sequences with rates, for tests of what it grants."""

from __future__ import annotations

from spec_control.acceptance import Rate
from spec_control.pacer import Pacer
from spec_control.track import Done, Track


def measured(
    pacer: Pacer, batch: int = 1, row: float = 0.1, aside: dict[str, float] | None = None, longest: int = 16
) -> None:
    """Plain steps and such with drafts of all lengths: each row costs the same, and each method what ``aside`` says."""
    number = 0
    for _ in range(3):
        for length in range(longest + 1):
            for name, time in (aside or {"a": 0.05}).items():
                for k in (0, length):
                    used = {pacer.arm(name): k * batch} if k else {}
                    forward = 1 + row * k
                    done = Done(batch, 100, batch * (1 + k), batch, used, cold=0, stands=1)
                    pacer.settle(done, forward, forward + 0.05 + time * bool(k))
                    number += 1
    pacer.ledger.balance = pacer.ledger.balance_max
    pacer.schedule.until, pacer._unprobed = 50, 0.0
    for arm in pacer.arms.values():
        arm.since, arm.chances, arm.lost = 0, arm.steps, 0.0


def track(pacer: Pacer, **rates: float) -> Track:
    return Track(tuple(map(pacer.arm, rates)), {name: Rate(rate, rate) for name, rate in rates.items()})


def lengths(grants) -> dict[str, int]:
    return {grant.arm.name: grant.length for grant in grants}
