"""The parts of the controller: a cost curve, acceptance, the ledger. Those of the machine have their own file."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from spec_control.acceptance import GRAIN, HIGH, LOW, Rate, Shape
from spec_control.arm import PRICE_MAX, Arm
from spec_control.curve import Curve, rising
from spec_control.ledger import Ledger
from spec_control.machine import Machine
from spec_control.pacer import Pacer
from spec_control.preemption import preemptions
from spec_control.track import Done


def curve(**measured):
    made = Curve()
    for name, value in measured.items():
        for _ in range(3):
            made.add(int(name[1:]), value)
    return made


def test_a_curve_is_linear_between_and_keeps_its_steps():
    made = curve(n1=1.0, n4=1.5, n5=2.2, n8=2.2)

    assert [made.at(n) for n in (1, 4, 5, 6, 8)] == pytest.approx([1.0, 1.5, 2.2, 2.2, 2.2])
    assert made.at(2) == pytest.approx(1 + 0.5 / 3)
    assert made.at(15) == pytest.approx(2.2 + 7 * 1.2 / 7)


def test_a_curve_never_falls_and_forgets_outliers():
    made = curve(n1=1.0, n2=1.4, n4=1.2)
    assert made.at(2) == made.at(4) == pytest.approx(1.3)

    for value in (9.0, 1.5, 1.5, 1.5):
        made.add(8, value)
    assert made.at(8) == 1.5


def test_what_was_expected_counts_beside_a_first_measurement():
    """One alone may be disturbed; three count alone."""
    made = curve(n1=1.0, n9=1.8)

    made.add(5, 1.6)
    assert made.at(5) == pytest.approx((1.4 + 1.6) / 2)
    made.add(5, 1.4)
    made.add(5, 1.4)
    made.add(5, 1.4)
    assert made.at(5) == pytest.approx(1.4)


def test_values_that_fall_get_their_mean():
    assert rising([3.0, 2.0, 1.0, 5.0], [1.0] * 4) == [2.0, 2.0, 2.0, 5.0]
    assert rising([1.0, 4.0, 1.0], [1.0, 1.0, 0.01]) == [
        1.0,
        pytest.approx(3.97, abs=0.01),
        pytest.approx(3.97, abs=0.01),
    ]


def test_a_rate_is_steady_until_the_text_changes():
    rate = Rate(0.6, 0.6)
    for accepted in (1, 0) * 20:
        rate.learn(accepted + 1 if not accepted else 1, accepted)
    assert 0.3 < rate.value < 0.7

    for _ in range(8):
        rate.learn(4, 4)
    assert rate.value > 0.85
    for _ in range(200):
        rate.learn(1, 0)
    assert rate.value == LOW
    for _ in range(200):
        rate.learn(4, 4)
    assert rate.value == pytest.approx(HIGH)


def test_a_shape_learns_by_position_and_full_acceptance_says_nothing_beyond():
    shape = Shape()
    for i in range(640):
        shape.learn(2, 1) if i % 2 else shape.learn(1, 1)

    assert shape.chances[0] > 0.95 > 0.1 > shape.chances[1]
    assert len(shape.chances) == 2
    assert shape.easier[1] < 1.0 < shape.easier[0]
    assert shape.path(0.5, 2)[2] < shape.path(0.5, 2)[1] ** 2 and shape.path(0.5, 2)[1] > 0.5


def test_a_ledger_is_capped_and_may_owe():
    ledger = Ledger(income=0.01, balance_max=5.0)
    ledger.settle(8, 1.0)
    assert ledger.balance == 5.0

    ledger.settle(1, 7.0)
    assert ledger.balance == pytest.approx(-0.99) == ledger.lowest


@pytest.mark.parametrize("rate", [19.5 / GRAIN, 44.5 / GRAIN, 60.5 / GRAIN])
def test_the_best_length_is_that_of_all_lengths(rate):
    times = [1.0, 1.4, 1.4, 1.5, 2.2, 2.2, 2.2, 2.3, 3.0]
    tokens = [sum(rate**i for i in range(k + 1)) for k in range(9)]
    wanted = max(range(9), key=lambda k: tokens[k] / times[k])

    found = Arm("x").best(times, [rate**i for i in range(9)])

    assert found.length == wanted
    assert found.tokens == pytest.approx(tokens[wanted])


def test_the_price_is_the_cost_of_a_token_but_no_more_than_the_best_draft_survives_with():
    times = [1.0, 1.2, 1.4, 1.6, 1.8]

    assert Arm("x").price(times) == Arm("x").price(times, 4, 0.5) == pytest.approx(0.2)
    assert Arm("x").price(times, 4, 0.1) == pytest.approx(0.1)
    assert Arm("x").price([1.0, 2.0, 4.0, 6.0]) == PRICE_MAX
    assert Arm("x").hurdle(times, 2.0) == pytest.approx((2 * 1.8 - 1) / 4)


def test_the_time_of_the_controller_is_paid_for():
    """Half a plain step in one that it plans in, and in one with measured time of its own."""
    pacer, plain = Pacer(), Done(1, 100, 1, 1, {}, cold=0, stands=1)
    for _ in range(3):
        pacer.settle(plain, 1.0, 1.2)
    full = pacer.ledger.balance

    pacer.settle(plain, 1.0, 1.2, own=0.6)
    assert pacer.ledger.balance == pytest.approx(full + 0.01 - 0.5)
    pacer.planned(1.8)
    assert pacer.ledger.balance == pytest.approx(full + 0.02 - 1.0)


def test_the_time_of_the_controller_is_part_of_a_step_with_drafts():
    machine, arm, plain = Machine(), Arm("a"), Done(1, 100, 1, 1, {}, cold=0, stands=1)
    pacer = Pacer(machine=machine)
    for _ in range(3):
        pacer.settle(plain, 1.0, 1.0)
    costs = machine.costs(1, 100)
    before = arm.time(costs, 2)

    costs.own = 0.25
    assert arm.time(costs, 2) == pytest.approx(before + 0.25)
    assert arm.time(costs, 0) == 1.0


@pytest.mark.parametrize(("balance", "risk"), [(20.0, 4.0), (8.0, 1.6), (2.0, 1.0), (0.5, 0.5), (-4.0, -0.8)])
def test_one_step_risks_a_part_of_the_ledger(balance, risk):
    ledger = Ledger()
    ledger.balance = balance

    assert ledger.risk == risk


def test_a_step_from_which_the_processor_was_taken_is_not_charged_for_it():
    """As often as the operating system says; after that as other disturbances, the largest of which is forgiven."""
    ledger = Ledger()
    ledger.excused = 2

    assert [ledger.forgive(30.0) for _ in range(4)] == [30.0, 30.0, 30.0, 0.0]
    assert ledger.forgive(1.0) == 0.0


def test_steps_of_a_plan_are_charged_by_their_own_forward_unless_that_was_disturbed():
    pacer = Pacer()
    pacer.machine.plain, pacer.risk, pacer.rows = 1.0, 1.0, (1, 3)

    assert pacer.charged(3, 3.0, 1.5) == (2.0, False)  # a machine that has become slower
    assert pacer.charged(3, 3.5, 1.0) == (3.5, False)
    pacer.ledger.excused = 1
    assert pacer.charged(3, 21.0, 20.0) == (2.0, True)  # the forward was interrupted: what was expected counts


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be kept on one processor here")
def test_the_processor_is_taken_away_from_processes_that_share_it():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # the child begins there too
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before, ends = preemptions(), time.monotonic() + 20.0
        while preemptions() == before and time.monotonic() < ends:
            pass
        assert preemptions() > before
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, cores)


def test_steps_of_a_plan_replace_the_costs_of_steps_in_which_the_controller_planned():
    arm = Arm("a")
    for _ in range(6):
        arm.drafted(1, 2, 0.9)
    assert arm.aside[1].at(2) == pytest.approx(0.9)

    arm.took(1, 2, 0.4, steps=5)
    arm.drafted(1, 2, 0.9)

    assert arm.aside[1].at(2) == pytest.approx(0.4)


def test_what_first_drafts_for_sequences_take_is_known_after_one_and_the_second_counts_instead():
    arm = Arm("a")

    arm.began(10.0)
    assert arm.beginning == pytest.approx(5.0)
    arm.began(4.0)
    assert arm.beginning == pytest.approx(4.0)
    arm.began(800.0)
    assert arm.beginning == pytest.approx(4.0)
    arm.began(6.0)
    assert arm.beginning == pytest.approx(6.0)


def test_a_first_draft_that_was_disturbed_is_not_the_last():
    arm = Arm("a")
    arm.began(800.0)
    assert arm.beginning == pytest.approx(8.0)

    arm.began(1.0)
    arm.began(800.0)
    assert arm.beginning == pytest.approx(1.0)
    arm.began(1.0)
    assert arm.beginning == pytest.approx(1.0)


def test_the_rate_of_a_method_is_a_mean_at_first_and_slow_later():
    shape = Shape()
    shape.learn_rate(36, 36)
    assert shape.rate == pytest.approx((4 * 0.6 + 36) / 40)

    shape.learn_rate(1000, 1000)
    shape.learn_rate(10, 0)

    assert shape.rate == pytest.approx(1 - 10 / 200)


def test_steps_of_a_plan_are_settled_one_by_one():
    """What exceeds the largest balance does not pay for what is lost afterwards."""
    ledger = Ledger(income=0.0, balance_max=20.0)

    ledger.settle_all([(10.0, 1.0), (1.0, 6.0), (1.0, 3.0), (2.0, 1.0)])

    assert (ledger.balance, ledger.lowest) == (14.0, 13.0)


def test_what_a_method_gains_is_a_mean_at_first():
    arm = Arm("a")

    assert arm.gained(tokens=48.0, spent=24.0, steps=24) == 1.0
    assert arm.gain == pytest.approx(0.75)
    assert arm.lost == -24.0
