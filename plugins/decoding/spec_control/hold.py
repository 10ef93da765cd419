"""For how many steps a plan holds, and what they may lose until it ends."""

from __future__ import annotations

import attrs

from spec_control.choice import YOUNG, Choice, known_to_pay, rejected
from spec_control.machine import Costs
from spec_control.track import Grant

HOLD, BRIEF, PROBES, UNKNOWN = 64, 24, 8, 4
"""Steps for which a plan holds at most, and half of those that its methods might draft in; also where one of them
is new, or the ledger allows only shorter drafts, but will allow more; for a probe; and at least where nothing is
known of its methods. After as many whose forwards do not say how fast the machine is, it ends."""
SELDOM = 0.5
"""Share of steps with drafts below which a plan may hold for more steps: for twice as many at most."""
LOST, PAID, PROBED = 2.0, 8.0, 0.5
"""Drafts that are wholly rejected, after which a plan does not hold any more: of a method; of one that is known to pay,
for which a new plan would cost as much as one of them, and mostly allow the same; and of a probe."""
SPENT, HALF = 3.0, 0.5
"""Plain steps that a plan of methods that are known to pay may lose, or this share of the ledger: one text must not
use it up."""
CHEAP = 2.0
"""Plain steps up to which first probes of a method do not wait for the income, and first drafts for a sequence do not
end a plan; and that the steps of a plan may lose, if the ledger has them, however little one step may risk."""


def longest(granted: list[Grant], choice: Choice, probe: bool) -> int:
    """Steps for which such a plan may hold."""
    if probe:
        return PROBES
    chances = [grant.arm.chances for grant in granted]
    brief = min(chances) < YOUNG or (choice.cut and not choice.ledger.full)
    known = BRIEF if all(grant.arm.paid for grant in granted) else UNKNOWN
    offering = max(SELDOM, max(grant.arm.offering for grant in granted))
    return min(int((BRIEF if brief else HOLD) / offering), max(known, max(chances) // 2))


def bearable(costs: Costs, granted: list[Grant], risk: float, choice: Choice, probe: bool) -> float:
    """Plain steps that the steps of such a plan may lose, if the ledger has them. risk: that one may lose."""
    small = max(CHEAP, choice.risk(costs))
    if probe:
        return min(PROBED * risk, small)
    if not all(known_to_pay(grant.arm) for grant in granted):
        return min(LOST * risk, small)
    usual = rejected(costs, [attrs.evolve(one, length=one.arm.usual(one.length)) for one in granted])
    balance = choice.ledger.balance
    spare = min(max(SPENT, HALF * balance), balance - 2.0 * risk)
    return max(min(LOST * usual, small), min(PAID * usual, spare))


def onward(granted: list[Grant], spare: float) -> bool:
    """Whether it also holds for a sequence that follows. spare: plain steps in the ledger beside what it may lose."""
    begins = sum(grant.arm.beginning for grant in granted)
    return begins < CHEAP or (begins <= spare and all(known_to_pay(grant.arm) for grant in granted))
