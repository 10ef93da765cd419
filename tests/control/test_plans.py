"""How much the steps of a plan may lose until it ends."""

from __future__ import annotations

import pytest
from spec_control.choice import YOUNG
from spec_control.hold import BRIEF, HALF, HOLD, LOST, PAID
from spec_control.pacer import Pacer

from tests.control.pacing import measured, track


def planned(balance: float, gain: float = 1.0, chances: int = YOUNG, used: float = 1.0, row: float = 0.02) -> Pacer:
    """After a plan for a method whose drafts gained so many plain steps."""
    pacer = Pacer()
    measured(pacer, row=row)
    pacer.ledger.balance = balance
    arm = pacer.arm("a")
    arm.gain, arm.chances, arm.used = gain, chances, used
    assert all(pacer.plan([track(pacer, a=0.9)], 1, 100)) and pacer.hold
    return pacer


def test_a_method_that_is_known_to_pay_may_lose_more_before_it_is_planned_anew():
    """A new plan would cost as much as a rejected draft, to allow the same."""
    pacer = planned(20.0)

    assert pacer.loss == pytest.approx(PAID * pacer.risk)


def test_drafts_that_use_little_of_what_they_may_count_as_long_as_they_usually_are():
    """The longest that a method may draft would be worth many plain steps, and it seldom does."""
    usual, short = planned(20.0), planned(20.0, used=0.25)

    assert short.risk == usual.risk
    assert short.loss < 0.6 * usual.loss


@pytest.mark.parametrize("gain, chances", [(-1.0, YOUNG), (1.0, YOUNG - 1)])
def test_another_may_lose_two_drafts(gain, chances):
    pacer = planned(20.0, gain, chances)

    assert pacer.loss == pytest.approx(LOST * pacer.risk)


def test_two_steps_are_left_in_the_ledger_beyond_what_a_plan_may_lose():
    """The one that ends it may take longer than any before it."""
    pacer = planned(2.5)

    assert PAID * pacer.risk > 2.5
    assert pacer.loss == pytest.approx(2.5 - 2.0 * pacer.risk)


def test_it_never_loses_less_than_another_may():
    """Plans that end at once would cost more than the drafts."""
    pacer = planned(0.9)

    assert pacer.loss == pytest.approx(min(LOST * pacer.risk, 0.9 - pacer.risk))
    assert pacer.loss > 0.9 - 2.0 * pacer.risk


def test_one_text_does_not_use_up_the_ledger_in_one_plan():
    pacer = planned(9.0, row=0.1)

    assert PAID * pacer.risk > HALF * 9.0
    assert pacer.loss == HALF * 9.0


@pytest.mark.parametrize("offering, longer", [(1.0, 1.0), (0.7, 1 / 0.7), (0.1, 2.0)])
def test_it_holds_for_more_steps_where_drafts_are_rare(offering, longer):
    """What is learned, and what may be lost, depends on drafts; to plan costs the same however many there were."""
    pacer = Pacer()
    measured(pacer, row=0.02)
    arm, pacer.schedule.until = pacer.arm("a"), 1000
    arm.gain, arm.chances, arm.offering = 1.0, 1000, offering

    pacer.plan([track(pacer, a=0.9)], 1, 100)

    assert pacer.hold == int(HOLD * longer)


@pytest.mark.parametrize(
    "beginning, balance, chances, holds",
    [
        (0.5, 20.0, YOUNG, True),
        (4.0, 20.0, YOUNG, True),
        (4.0, 6.0, YOUNG, False),
        (4.0, 20.0, YOUNG - 1, False),
    ],
)
def test_it_holds_for_the_sequence_that_follows_if_the_ledger_covers_its_first_draft(
    beginning, balance, chances, holds
):
    pacer = Pacer()
    measured(pacer, row=0.02)
    pacer.ledger.balance = balance
    arm = pacer.arm("a")
    arm.gain, arm.chances, arm.beginning = 1.0, chances, beginning

    assert all(pacer.plan([track(pacer, a=0.9)], 1, 100)) and pacer.hold >= min(BRIEF, chances // 2)
    assert pacer.onward is holds
