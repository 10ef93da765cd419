"""A text in which drafts lose leaves the rest of the ledger to those that begin later."""

from __future__ import annotations

import pytest
from spec_control.learning import Learner, Memory
from spec_control.ledger import FULL, KEPT, RESERVE, Ledger
from spec_control.pacer import REPAYING, Pacer
from spec_control.track import LOSING, Grant, Track

from spec_core import DraftAttempt, StepRecord
from tests.control.pacing import lengths, measured, track

METHODS = {"a": frozenset({"deterministic"})}


def known(balance: float) -> Pacer:
    pacer = Pacer()
    measured(pacer)
    pacer.ledger.balance = balance
    return pacer


def test_what_it_gained_does_not_pay_for_what_it_loses_afterwards():
    one = Track(())
    one.settled([(9.0, 2.0), (1.0, 1.5)], own=0.2)
    assert one.lost == 0.5

    one.settled([(1.0, 2.0), (3.0, 2.5), (1.0, 3.0)], own=0.4)
    assert one.lost == pytest.approx(0.5 + 0.4 + 1.0 - 0.5 + 2.0)
    assert one.loses


def test_it_drafts_while_there_is_enough_for_others():
    pacer = known(KEPT + 0.5)
    one = track(pacer, a=0.9)
    one.lost = LOSING + 1.0
    assert lengths(pacer.plan([one], 1, 100)[0])

    pacer.ledger.balance = KEPT - 0.5
    assert pacer.plan([one], 1, 100) == [()]
    assert pacer.reason == REPAYING and not pacer.joining, "a text that begins ends the rest"
    assert lengths(pacer.plan([track(pacer, a=0.9)], 1, 100)[0])


def test_of_several_one_that_does_not_lose_is_enough():
    pacer = known(KEPT - 0.5)
    pair = [track(pacer, a=0.9), track(pacer, a=0.9)]
    pair[0].lost = LOSING + 1.0

    assert pacer._kept(pair) == 0.0
    pair[1].lost = LOSING + 1.0
    assert pacer._kept(pair) == KEPT


def made(number: int, seq: int, accepted: int) -> StepRecord:
    """A draft of four tokens, which takes three plain steps."""
    tried = (DraftAttempt(seq, "a", 4, 4, 4, accepted),)
    return StepRecord(number, 3.6e-3, {"verify": 3e-3}, 1, 5, 1 + accepted, 100, tried)


def learner() -> Learner:
    pacer = Pacer()
    pacer.risk = 2.0
    pacer.machine.measured(pacer.machine.costs(1, 100), 1, 1e-3, 2e-4)
    found = Learner(pacer)
    arm = pacer.arm("a")
    found.memories[0] = Memory(Track((arm,)), (Grant(arm, 4, 0.3),))
    found.memories[0].track.rating(arm)
    return found


def test_the_steps_of_a_plan_count_for_its_text():
    found = learner()
    found.learn([made(i, 0, accepted=0) for i in range(3)], "auto", METHODS)

    assert found.memories[0].track.lost == 3 * 2.0


def test_a_step_of_a_machine_that_became_slower_is_worth_more():
    """By the share of its own forward that a plain step takes."""
    found = learner()
    found.pacer.shares = {5: 0.4}
    slow = [StepRecord(i, 7.2e-3, {"verify": 6e-3}, 1, 5, 1, 100, made(i, 0, 0).attempts) for i in (1, 2)]
    found.learn([made(0, 0, accepted=0), *slow], "auto", METHODS)

    assert found.memories[0].track.lost == pytest.approx(3 * 2.0)


def test_once_the_ledger_was_used_up_it_is_repaid_with_a_reserve():
    pacer = known(-1.0)
    pacer.planning = 0.5
    pacer.arm("a").stood(0.0)

    assert pacer.plan([track(pacer, a=0.9)], 1, 100) == [()]
    assert pacer.quiet == int((1.0 + RESERVE + 0.5 + 1.0) / 0.01) and pacer.joining


def test_a_text_that_used_the_ledger_up_keeps_those_that_follow_waiting_no_longer():
    """It may not draft any more itself, but that is not their concern."""
    pacer = known(-1.0)
    pacer.arm("a").stood(0.0)
    one = track(pacer, a=0.9)
    one.lost = LOSING + 1.0

    assert pacer.plan([one], 1, 100) == [()]
    assert pacer.quiet == int((1.0 + RESERVE + 1.0) / 0.01) and pacer.joining


def test_with_little_to_lose_at_all_less_must_be_repaid():
    """A ledger of two plain steps never has four in it: drafts would not begin again."""
    small = Ledger(balance_max=2.0)

    assert small.reserve < small.balance_max and small.kept < small.balance_max
    assert Ledger().reserve == RESERVE and Ledger().kept == KEPT


@pytest.mark.parametrize("balance, level", [(2.0, RESERVE), (5.0, KEPT), (12.0, FULL * 20.0)])
def test_drafts_that_the_ledger_does_not_allow_wait_for_the_next_level(balance, level):
    ledger = Ledger()
    ledger.balance = balance

    assert ledger.next_level == level


def test_in_a_plan_that_went_on_with_the_next_text_each_has_its_own():
    found = learner()
    found.learn([made(0, 0, 0), made(1, 0, 0), made(2, 7, 4), made(3, 7, 0)], "auto", METHODS)

    assert found.memories[7].track.lost == 2.0


def test_a_single_step_counts_too():
    found = learner()
    found.pacer.steps = 5
    found.learn([made(0, 0, accepted=0)], "auto", METHODS)

    assert found.memories[0].track.lost > 0.5
