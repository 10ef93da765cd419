"""Limits and prices that stand for more steps, in which the controller is not called; and what it can read of them."""

from __future__ import annotations

import time

import attrs
import pytest

from spec_core import Compat, Draft, Request, Run, StepRecord, hookimpl
from spec_core.contract.hold import Hold
from spec_core.testing import ToyTarget
from tests.core.test_rests import REQUEST, Controller, Method

SECONDS = 1e9
"""More than any step takes."""


class Longest(Method):
    """Drafts as much as it may, and notes how much that is, and the price."""

    @hookimpl
    def draft(self, step):
        self.calls["draft"].append(step.number)
        for seq, budget in step.undrafted:
            self.calls.setdefault("asked", []).append((step.number, budget, step.price(seq, None, 0.5)))
            step.propose(seq, Draft([1] * budget))


def holds(steps=5, loss=SECONDS, per_token=0.0, at=2, **more):
    """A limit and a price in one step, which stand for more."""

    def act(step):
        if step.number == at:
            for part in step.parts:
                step.limit(part.seq, 2)
                step.set_price(part.seq, 0.25)
            step.hold(steps, loss, per_token, **more)

    return act


def run_of(act, *requests, controllers=(), **settings):
    method, controller = Longest(), Controller(act)
    run = Run(ToyTarget(recurrent=False), [("method", method), controller, *controllers], draft_max=4, **settings)
    results = [generated.result.tokens for generated in run.generate(list(requests))]
    assert results == [Run(ToyTarget(recurrent=False)).generate(request).result.tokens for request in requests]
    return method, controller


def test_limits_and_prices_stand_and_the_controller_is_not_called():
    method, controller = run_of(holds(), REQUEST)

    assert controller.asked[:4] == [1, 2, 8, 9]
    assert controller.rolled[:5] == [0, 1, 2, 8, 9]
    assert method.calls["asked"][:9] == [
        (1, 4, 0.5), *((step, 2, 0.25) for step in range(2, 8)), (8, 4, 0.5), (9, 4, 0.5),
    ]  # fmt: skip


def test_a_rest_may_follow_it():
    """Nobody drafts in three steps after the last of five, and then the controller is called."""
    method, controller = run_of(holds(rest=3), REQUEST)

    assert controller.asked[:4] == [1, 2, 11, 12]
    assert controller.passed[2] == [2, 3, 4, 5, 6, 7, 9, 10]
    assert [step for step in method.calls["draft"] if step < 13] == [1, 2, 3, 4, 5, 6, 7, 11, 12]


def test_no_rest_follows_a_plan_that_lost_too_much():
    _, controller = run_of(holds(loss=0.0, rest=3), REQUEST)

    assert controller.asked[:4] == [1, 2, 4, 5]


def test_a_sequence_that_joins_ends_the_rest_that_follows():
    run = Run(ToyTarget(recurrent=False), [("method", method := Longest()), controller := Controller(holds(2, rest=9))])
    run.submit(REQUEST)
    for _ in range(6):
        run.step()
    run.submit(SECOND)
    list(run)

    assert controller.asked[:3] == [1, 2, 6]
    assert [step for step in method.calls["draft"] if step < 7] == [1, 2, 3, 4, 6]


def test_it_ends_where_its_steps_lost_too_much():
    """Every step takes longer than nothing at all."""
    _, controller = run_of(holds(loss=0.0), REQUEST)

    assert controller.asked[:4] == [1, 2, 4, 5]


def test_it_does_not_end_where_tokens_are_worth_their_time():
    _, controller = run_of(holds(loss=0.0, per_token=SECONDS), REQUEST)

    assert controller.asked[:3] == [1, 2, 8]


@pytest.mark.parametrize("share, asked", [(0.0, [1, 2, 4, 5]), (SECONDS, [1, 2, 8])])
def test_a_share_of_its_own_forward_says_what_a_token_is_worth(share, asked):
    """The share counts if it is known for the step's number of rows; otherwise ``per_token`` does."""
    _, controller = run_of(holds(loss=0.0, per_token=SECONDS, of_forward={3: share}), REQUEST)
    assert controller.asked[: len(asked)] == asked

    _, controller = run_of(holds(loss=0.0, per_token=SECONDS, of_forward={9: share}), REQUEST)
    assert controller.asked[:3] == [1, 2, 8]


@pytest.mark.parametrize(
    ("listed", "unlisted", "asked"),
    [
        (9, None, [1, 2, 8]),
        (9, 2, [1, 2, 5, 6]),
        (9, 0, [1, 2, 3]),
        (3, None, [1, 2, 8]),
        (3, 1, [1, 2, 8]),
        (3, 0, [1, 2, 3]),
    ],
)
def test_it_ends_after_some_steps_whose_forwards_do_not_tell_their_worth(listed, unlisted, asked):
    """Its forwards have three rows."""
    _, controller = run_of(holds(of_forward={listed: 0.0}, unlisted=unlisted), REQUEST)

    assert controller.asked[: len(asked)] == asked


@pytest.mark.parametrize("faster", [1.0, 4.0])
def test_a_loss_is_counted_at_the_speed_of_the_plan(faster):
    """On a machine that has become four times as fast, each second counts four times: else four times as much is lost.

    Five rows take two seconds, and half of that is what a token is worth.
    """
    hold = Hold(9, 1.0, 1.0, frozenset(), False, {5: 0.5})

    assert hold.loss_of(StepRecord(0, 3.5 / faster, {"verify": 2.0 / faster}, 1, 5, 2)) == pytest.approx(1.5)


def test_what_its_first_steps_gained_does_not_pay_for_the_others():
    class Early(Longest):
        """Drafts in the first steps only."""

        @hookimpl
        def draft(self, step):
            if step.number < 5:
                super().draft(step)

    method = Early()
    controller = Controller(holds(20, loss=0.0, of_forward={3: SECONDS}))
    run = Run(ToyTarget(recurrent=False), [("method", method), controller], draft_max=4)
    run.generate(REQUEST).result

    assert controller.asked[:4] == [1, 2, 6, 7]


@pytest.mark.parametrize("onward", [False, True])
@pytest.mark.parametrize("other", [Request([2, 7, 1], max_tokens=9), Request([2, 7, 1], max_tokens=9, methods=())])
def test_a_sequence_that_joins_ends_it(other, onward):
    """Also where it would stand for one that follows: this one runs beside the first."""
    run = Run(ToyTarget(recurrent=False), [("method", Longest()), controller := Controller(holds(20, joining=onward))])
    run.submit(REQUEST)
    for _ in range(4):
        run.step()
    run.submit(other)
    list(run)

    assert controller.asked[:3] == [1, 2, 4]


def test_a_sequence_that_ends_ends_it():
    """The other one begins with the same step, and has more tokens."""
    short = Request([2, 7, 1], max_tokens=5)
    _, controller = run_of(holds(20), short, REQUEST)

    assert controller.asked[:2] == [1, 2]
    assert controller.asked[2] < 8


def one_after_the_other(act, *requests, target=None):
    """Returns the method, the controller, and the first step of the last sequence."""
    method, controller, begun = Longest(), Controller(act), []
    run = Run(target or ToyTarget(recurrent=False), [("method", method), controller], draft_max=4, max_sequences=1)
    seqs = [run.submit(request) for request in requests]
    run.observe(lambda step: begun.append(step.number) if step.parts[0].seq is seqs[-1] else None)
    list(run)
    return method, controller, begun[0]


SECOND = Request([2, 7, 1], max_tokens=9)


def test_it_may_stand_for_the_sequence_that_follows():
    method, controller, begun = one_after_the_other(holds(60, joining=True), REQUEST, SECOND)
    without, asked, _ = one_after_the_other(holds(60), REQUEST, SECOND)

    assert controller.asked == [1, 2]
    assert {budget for step, budget, _ in method.calls["asked"] if step >= 2} == {1, 2}
    assert asked.asked[2] == begun + 1
    assert max(budget for step, budget, _ in without.calls["asked"] if step > begun) == 4


def test_it_does_not_stand_for_one_that_wants_no_control():
    free = attrs.evolve(SECOND, control=False)
    method, _, begun = one_after_the_other(holds(60, joining=True), REQUEST, free)
    assert max(budget for step, budget, _ in method.calls["asked"] if step > begun) == 4


def test_methods_are_dropped_from_the_sequence_that_follows():
    act = holds(60, joining=True, without=["method"])
    method, controller, begun = one_after_the_other(act, REQUEST, SECOND)

    assert controller.asked == [1, 2]
    assert max(method.calls["draft"]) < begun


class SlowPrompts(ToyTarget):
    def forward(self, batch, needs):
        if len(batch.tokens) >= 30:
            time.sleep(0.5)
        return super().forward(batch, needs)


def test_time_for_a_prompt_is_no_loss():
    long = attrs.evolve(SECOND, prompt=[2, 7, 1] * 10)
    act = holds(60, loss=0.4, joining=True)
    _, controller, _ = one_after_the_other(act, REQUEST, long, target=SlowPrompts(recurrent=False))

    assert controller.asked == [1, 2]


def test_a_sequence_that_wants_no_control_or_another_controller_prevents_it():
    class Idle:
        @hookimpl
        def compat(self):
            return Compat(drafts=())

        @hookimpl
        def draft(self, step):
            pass

    _, beside = run_of(holds(), REQUEST, Request([2, 7, 1], max_tokens=30, control=False))
    _, with_another = run_of(holds(), REQUEST, controllers=[Idle()])

    assert beside.asked[:5] == with_another.asked[:5] == [1, 2, 3, 4, 5]


def test_a_rest_takes_precedence():
    def both(step):
        holds()(step)
        if step.number == 2:
            step.rest(3)

    method, controller = run_of(both, REQUEST)

    assert controller.asked[:3] == [1, 2, 6]
    assert method.calls["draft"][:3] == [1, 2, 6]


def test_a_controller_reads_what_became_of_all_steps_since_it_was_called():
    seen, drafted = [], []

    def reads(step):
        seen.append(list(step.records))
        holds()(step)

    method, controller = Longest(), Controller(reads)
    run = Run(ToyTarget(recurrent=False), [("method", method), controller], draft_max=4)

    def look(step):
        part = step.parts[0]
        if part.budget:
            drafted.append((step.number, part.drafted, len(part.full_verdict.path), len(part.emitted), part.start))

    run.observe(look)
    run.generate(REQUEST).result
    passed = [spent for records in seen for spent in records]

    assert [spent.number for spent in seen[2]] == [2, 3, 4, 5, 6, 7]
    assert [
        (spent.number, one.drafted, one.accepted, spent.tokens, spent.depth)
        for spent in passed
        for one in spent.attempts
    ] == [one for one in drafted if one[0] <= passed[-1].number]
    assert {(one.method, one.budget) for spent in seen[2] for one in spent.attempts} == {("method", 2)}
    assert all(spent.total_seconds > spent.seconds["verify"] > 0 and not spent.resting for spent in passed)
