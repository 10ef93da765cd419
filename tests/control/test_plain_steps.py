"""What a plain step takes: measured once the caches hold its data again, and a little before a plan would end."""

from __future__ import annotations

import attrs
import pytest
from spec_control.arm import Arm
from spec_control.learning import Learner
from spec_control.machine import Machine, drifts
from spec_control.pacer import MEASURING, Pacer
from spec_control.schedule import Schedule
from spec_control.sums import Sums
from spec_control.track import Done

from spec_core import DraftAttempt, StepRecord
from tests.control.pacing import lengths, measured, track


def step(forward: float, drafted: int = 0) -> StepRecord:
    tried = (DraftAttempt(0, "a", 8, drafted, drafted, 0),) if drafted else ()
    return StepRecord(1, forward + 1e-4, {"verify": forward}, 1, 1 + drafted, 1, 100, tried)


def test_the_first_plain_steps_after_a_draft_tell_nothing():
    """They take longer: the draft and the controller have left other data in the caches."""
    sums = Sums()
    for each in [step(9.0), step(3.0), step(1.0), step(2.0, drafted=4), step(1.3), step(1.1), step(1.0), step(0.9)]:
        sums.add(each, each.total_seconds, 1.0)

    assert sums.forwards == {1: [1.0, 1.0, 0.9], 5: [2.0]}
    assert sums.plain == len(sums.idle) == 7, "what they take beside the forward is what it costs to ask in vain"


def test_the_fourth_plain_step_after_a_draft_is_measured():
    pacer = Pacer()
    measured(pacer)
    one = track(pacer, a=0.9)
    assert lengths(pacer.plan([one], 1, 100)[0])
    pacer.schedule.until = 0

    assert pacer.plan([one], 1, 100) == [()]
    assert (pacer.reason, pacer.quiet) == (MEASURING, 3)


@pytest.mark.parametrize(("before", "last"), [(1e-3, 1.6e-3), (1.6e-3, 1e-3)])
def test_of_the_last_two_steps_of_a_rest_the_faster_one_is_measured(before, last):
    """A forward that was disturbed would make those with drafts seem cheap for a long time."""
    learner = Learner(Pacer())
    ends = [StepRecord(i, s + 2e-4, {"verify": s}, 1, 1, i - 6, 100, resting=True) for i, s in ((6, before), (7, last))]
    learner.learn([step(1e-3), *ends], "auto", {})
    learner.learn([step(1e-3), *(attrs.evolve(one, number=one.number + 9) for one in ends)], "auto", {})

    assert learner.pacer.machine.forward == pytest.approx(1e-3)
    assert learner.pacer.machine.plain == pytest.approx(1.2e-3)


def test_a_plain_step_is_measured_a_little_early():
    """A plan for the few steps that are left would cost more."""
    schedule = Schedule(patience=64)
    schedule.passed(True, False, apart=64, apart_max=128)

    schedule.passed(False, False, 64, 128, steps=55)
    assert not schedule.due
    schedule.passed(False, False, 64, 128, steps=1)
    assert schedule.due


def test_one_that_is_due_at_once_after_a_surprise_is_not_put_off():
    schedule = Schedule(patience=64)
    schedule.passed(True, True, apart=64, apart_max=128)

    assert schedule.due


@pytest.mark.parametrize(
    ("seconds", "changed"),
    [
        ([1.0] * 4 + [3.0] * 4, True),
        ([3.0] * 5 + [1.0] * 7, True),
        ([1.0, 1.4] * 4, False),
        ([1.0, 1.0, 9.0, 1.0, 1.0, 1.0], False),
        ([1.0, 1.0, 3.0, 3.0], False),
    ],
    ids=["slower", "faster", "noise", "one disturbance", "too few to tell"],
)
def test_whether_a_machine_changed_its_speed_within_a_plan(seconds, changed):
    assert drifts(seconds) == changed


def test_no_cost_is_learned_from_a_plan_in_which_the_machine_changed_its_speed():
    """Compared with the plain step before or after it, a forward of four rows would be far too cheap, or too dear."""
    machine = Machine()
    costs = machine.costs(1, 100)
    machine.measured(costs, 1, 3e-3, 3e-4)

    assert not machine.held(costs, {4: [6e-3] * 5 + [2e-3] * 7})

    assert machine.surprised and not costs.forwards.times(4)
    machine.measured(costs, 1, 1e-3, 1e-4)
    assert not costs.forwards.times(4)


def test_a_disturbed_step_is_charged_as_what_was_expected_of_it():
    """Without a draft that is a plain step; with less than was granted, part of what the longest would lose."""
    pacer = Pacer()
    pacer.machine.plain, pacer.risk, pacer.rows, pacer.ledger.excused = 1.0, 2.5, (1, 6), 3

    assert pacer.charged(6, 21.0, 1.0) == (3.5, True)
    assert pacer.charged(3, 21.0, 1.0) == (2.0, True)
    assert pacer.charged(1, 21.0, 1.0) == (1.0, True)


def test_a_disturbed_step_in_which_the_controller_planned_tells_no_cost():
    pacer = Pacer()
    measured(pacer)
    arm = pacer.arm("a")
    before = list(arm.aside[1].measured[4])
    pacer.settle(Done(1, 100, rows=5, tokens=1, drafted={arm: 4}, cold=0, stands=1), 1.4, 21.0)
    assert pacer.ledger.forgiven > 0.0 and arm.aside[1].measured[4] == before

    pacer.settle(Done(1, 100, rows=5, tokens=1, drafted={arm: 4}, cold=0, stands=1), 1.4, 1.6)
    assert len(arm.aside[1].measured[4]) == len(before) + 1


def test_one_token_more_than_a_method_is_known_to_make_is_tried_ever_more_seldom():
    """A forward with more rows than were measured keeps a plan from holding."""
    arm, tried = Arm("a"), []
    arm.longest = 4
    for arm.steps in range(1, 100):
        if arm.longer(4) == 5:
            tried.append(arm.steps)

    assert tried == [1, 2, 4, 8, 16, 32, 64]
    assert arm.longer(3) == 3
