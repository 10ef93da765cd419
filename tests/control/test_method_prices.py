"""The price that a method is given follows from how its drafts end: its own chances may be too low or too high."""

from __future__ import annotations

import pytest
from spec_control.arm import Arm
from spec_control.price import HIGH, LOW, Factor
from spec_control.sums import Drafts

from spec_core.contract.spent import DraftAttempt

TIMES = [1.0, 1.2, 1.4, 1.6, 1.8]


def chain(depth, accepted, budget=8, drafted=None):
    return DraftAttempt(0, "a", budget, drafted or depth, depth, accepted)


def test_a_method_whose_last_tokens_are_mostly_right_gets_a_lower_price():
    arm = Arm("a")
    before = arm.price(TIMES)
    arm.stopped(20, whole=16)

    assert arm.price(TIMES) < before == pytest.approx(0.2)
    assert arm.factor.needed == pytest.approx(0.2)


def test_a_method_whose_last_tokens_are_mostly_wrong_gets_a_higher_price():
    arm = Arm("a")
    before = arm.price(TIMES)
    arm.stopped(20, whole=1)

    assert arm.price(TIMES) > before


def test_the_price_stays_where_as_many_are_right_as_pay():
    factor = Factor(needed=0.25)
    for _ in range(100):
        factor.learn(4, whole=1)

    assert factor.value == pytest.approx(1.0)


@pytest.mark.parametrize(("whole", "end"), [(1000, LOW), (0, HIGH)])
def test_the_factor_has_limits(whole, end):
    factor = Factor(needed=0.5)
    factor.learn(1000, whole)

    assert factor.value == end


def test_where_steps_yield_more_tokens_than_their_time_a_token_must_be_surer():
    """Its time would bring as much elsewhere."""
    factor = Factor()
    factor.gained(tokens=30.0, spent=20.0, steps=10)
    factor.require(0.2)
    assert factor.needed == pytest.approx(0.3)

    factor.gained(tokens=10.0, spent=100.0, steps=10)
    factor.require(0.2)
    assert factor.needed == pytest.approx(0.2), "not less than its cost where drafts lose"


def test_trees_say_little_of_it():
    arm = Arm("a")
    arm.price(TIMES)
    arm.branched(rows=8, depth=4)
    arm.stopped(20, whole=20)

    assert arm.factor.value == 1.0


def test_only_chains_that_ended_before_their_limit_count():
    drafts = Drafts()
    for tried in (chain(3, 3), chain(3, 1), chain(8, 8), chain(2, 2, drafted=5), chain(2, None)):
        drafts.add(tried)

    assert (drafts.stopped, drafts.whole) == (2, 1)
