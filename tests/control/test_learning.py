"""What the controller learns from the steps of a run, and what it counts of them."""

from __future__ import annotations

from spec_control.auto import Auto
from spec_control.learning import Learner, Memory
from spec_control.pacer import Pacer
from spec_control.sums import Sums
from spec_control.track import Grant, Track
from spec_methods.ngram import Ngram

from spec_core import Request, Run, StepRecord
from spec_core.contract.spent import DraftAttempt
from tests.control.test_auto import PROMPT, finished, oracle, toy


def test_the_last_step_of_a_rest_is_measured_and_stands_for_the_others():
    """The report counts every step, also of a rest that is not over."""
    request = Request(PROMPT, max_tokens=300, name="a")
    auto = Auto()
    run = Run(toy(), [auto, oracle([request], right=lambda i, seq: False)])
    steps = []
    run.observe(lambda step: steps.append(step))
    run.generate(request).result

    reported = auto.report()["steps"]

    assert auto.pacer.steps < len(steps)
    assert len(steps) - 12 <= reported <= len(steps)


def test_to_ask_for_a_report_changes_no_plan(monkeypatch):
    """Steps would be learned one by one that are else learned together, and a recorded run not be replayed."""
    monkeypatch.setattr("spec_control.auto.preemptions", lambda: 0)  # one between two reports would excuse a step
    request = Request(PROMPT, max_tokens=300, name="a")
    auto = Auto()
    Run(toy(), [auto, oracle([request], right=lambda i, seq: False)]).generate(request).result
    before, upto, book = repr(auto.pacer), auto.learner.upto, auto.pacer.book.report()

    assert auto.report() == auto.report()
    assert auto.report()["steps"] > book["steps"], "steps of the last plan are counted"
    assert (repr(auto.pacer), auto.learner.upto, auto.pacer.book.report()) == (before, upto, book)


def test_a_drafter_that_is_always_wrong_is_soon_left_alone():
    request = Request(PROMPT, max_tokens=300, name="a")
    wrong = oracle([request], right=lambda i, seq: False)
    kept = Run(toy(), [wrong], control="auto").generate(request).result.stats
    free = Run(toy(), [wrong]).generate(request).result.stats

    assert kept["drafted"] < free["drafted"] / 10


def test_each_method_of_a_spliced_draft_learns_from_its_own_tokens(monkeypatch):
    request = Request([*PROMPT, *PROMPT, *PROMPT], max_tokens=80, name="a")
    controller, learned, pieces = Auto(), [], []
    run = Run(toy(), [controller, oracle([request], length=2), Ngram(n_min=1, extend=True)])
    learn = Pacer.learn

    def recorded(self, track, arm, rows, depth, accepted, granted):
        learned.append((arm.name, rows, accepted))
        learn(self, track, arm, rows, depth, accepted, granted)

    def look(step):
        for part in step.parts:
            if part.full_verdict is not None:
                kept = part.full_verdict.path
                pieces.extend(
                    (p.source, len(p.draft), len(p.accepted_in(kept))) for p in part.pieces if p.was_tested(kept)
                )

    def all_methods(self, tracks, batch, depth):
        return [tuple(Grant(arm, 6, 0.0) for arm in track.arms) for track in tracks]

    monkeypatch.setattr(Pacer, "learn", recorded)
    monkeypatch.setattr(Pacer, "plan", all_methods)  # whatever the clock says
    run.observe(look)
    finished(run, [request])
    controller.report()  # which learns from the last steps, too

    assert {name for name, _, _ in learned} == {"oracle", "ngram"}
    assert learned == pieces


def test_a_disturbed_last_step_of_a_rest_does_not_stand_for_all_of_it():
    """A method that was interrupted in that one step has not taken so long in a thousand."""
    pacer = Pacer()
    learner, methods = Learner(pacer), {"lookup": frozenset({"deterministic"})}
    learner.memories[0] = Memory(Track((pacer.arm("lookup"),)))

    def rest(first, steps, process):
        seconds = {"verify": 1e-3, "process.lookup": process}
        planned = StepRecord(first, 1.2e-3, {"verify": 1e-3}, 1, 1, 1, 50)
        last = StepRecord(first + steps, 1.1e-3 + process, seconds, 1, 1, 1, 50, resting=True)
        learner.learn([planned, last], "auto", methods)

    for i in range(5):
        rest(11 * i, 10, 1e-5)
    before = pacer.ledger.balance
    rest(55, 1000, 5e-3)

    assert pacer.ledger.balance >= before - 1.0


def test_a_method_that_does_nothing_while_it_does_not_draft_is_known_to_cost_nothing_then():
    """Otherwise its cost would be looked at again after a few steps, all the time."""
    request = Request(PROMPT, max_tokens=300, name="a")
    auto = Auto()
    run = Run(toy(), [auto, oracle([request], right=lambda i, seq: False)])
    run.generate(request).result

    assert auto.pacer.arm("oracle").stands
    assert auto.pacer.service.endured([auto.pacer.arm("oracle")]) is None


def test_a_step_counts_once_for_a_method_however_many_sequences_it_drafts_for():
    requests = [Request([*PROMPT, i], max_tokens=80, name=str(i)) for i in range(3)]
    run = Run(toy(), [oracle(requests)], control="auto", max_sequences=3)
    finished(run, requests)
    report = run.stats.report()["reports"]["auto"]

    assert 0 < report["methods"]["oracle"]["steps"] <= report["steps"]
    assert report["methods"]["oracle"]["time_share"] <= 1.0


METHODS = {"lookup": frozenset({"deterministic"})}


def learner_of_a_plan():
    """One sequence for which a method may draft, after a plain step of 1.2 ms was measured."""
    pacer = Pacer()
    pacer.machine.measured(pacer.machine.costs(1, 50), 1, 1e-3, 0.2e-3)
    learner = Learner(pacer)
    arm = pacer.arm("lookup")
    learner.memories[0] = Memory(Track((arm,)), (Grant(arm, 4, 0.3),))
    learner.memories[0].track.rating(arm)
    return pacer, learner


def made(number, whole, forward, tried=(), seq=0, own=0.0):
    tokens = 1 + sum(accepted for _, accepted in tried)
    found = tuple(DraftAttempt(seq, "lookup", 4, drafted, drafted, accepted) for drafted, accepted in tried)
    rows = 1 + sum(drafted for drafted, _ in tried)
    return StepRecord(number, whole, {"verify": forward, "draft.auto": own}, 1, rows, tokens, 50, found)


def test_the_step_in_which_the_controller_planned_is_paid_for_but_not_learned_from():
    pacer, learner = learner_of_a_plan()
    planned = made(1, 6e-3, 3e-3, [(4, 4)], own=1.2e-3)
    plan = [made(2 + i, 3.6e-3, 2e-3, [(3, 3)]) for i in range(3)] + [made(5 + i, 1.2e-3, 1e-3) for i in range(5)]
    before, pacer.risk = 10.0, 2.0
    pacer.ledger.balance = before

    learner.learn([planned, *plan], "auto", METHODS)

    costs = pacer.machine.costs(1, 50)
    assert costs.forwards.at(4) == 2.0
    assert abs(pacer.arm("lookup").aside[1].at(3) - 1.6) < 1e-9
    assert not costs.forwards.times(5) and 4 not in pacer.arm("lookup").aside[1].measured
    assert pacer.schedule.until == pacer.schedule.patience == 8  # plain steps among them count as measured
    tokens, spent = 5 + 3 * 4 + 5, 6.0 / 1.2 + 3 * 3.6 / 1.2 + 5
    assert abs(pacer.ledger.balance - (before + 1.01 * tokens - spent)) < 1e-6


def test_a_step_that_was_disturbed_says_nothing_of_costs():
    pacer, learner = learner_of_a_plan()
    pacer.risk, pacer.rows = 2.0, (1, 5)
    plan = [made(1 + i, 12e-3 if i % 2 else 3.6e-3, 2e-3, [(3, 3)]) for i in range(8)]

    learner.learn(plan, "auto", METHODS)

    assert abs(pacer.arm("lookup").aside[1].at(3) - 1.6) < 1e-9


def test_a_sequence_that_follows_under_the_same_plan_is_learned_from():
    pacer, learner = learner_of_a_plan()
    steps = [made(1, 3e-3, 2e-3, [(3, 3)], own=1e-4), made(2, 3e-3, 2e-3, [(3, 0)], seq=7), made(3, 1.2e-3, 1e-3)]

    learner.learn(steps, "auto", METHODS)

    arm = pacer.arm("lookup")
    assert learner.memories[0].track.rate(arm) > 0.6
    assert [memory.track.rates["lookup"].tested for memory in learner.memories.values()] == [3, 1]
    assert learner.memories[7].grants == learner.memories[0].grants
    assert arm.chances == 3


def test_the_first_draft_for_a_sequence_that_follows_is_paid_for_but_is_no_loss_of_its_text():
    """It takes longer, as the method evaluates the text: that is no disturbance, and says nothing of later drafts."""
    pacer, learner = learner_of_a_plan()
    pacer.risk, pacer.rows = 2.0, (1, 5)
    pacer.ledger.balance = 10.0
    arm = pacer.arm("lookup")
    arm.began(6.0)  # half of it counts
    first = made(2, 7.2e-3, 2e-3, [(2, 0)], seq=7)
    plan = [made(1, 3.6e-3, 2e-3, [(3, 3)]), first, *(made(3 + i, 3.6e-3, 2e-3, [(3, 3)], seq=7) for i in range(3))]

    learner.learn(plan, "auto", METHODS)

    assert pacer.ledger.forgiven == 0.0
    assert abs(pacer.ledger.balance - (10.0 + 1.01 * 17 - (4 * 3.6 + 7.2) / 1.2)) < 1e-6
    assert arm.beginning > 3.0
    assert learner.memories[7].track.lost < 1.5
    assert [*arm.aside[1].measured] == [3] and not pacer.machine.costs(1, 50).forwards.times(3)


def test_a_first_draft_within_a_plan_tells_no_cost_of_drafts_and_is_never_excused_as_an_interruption():
    pacer, learner = learner_of_a_plan()
    pacer.ledger.excused = 1
    arm = pacer.arm("lookup")
    before = arm.aside.copy()

    learner.learn([made(1, 1.2e-3, 1e-3), made(2, 30e-3, 2e-3, [(3, 0)], seq=7)], "auto", METHODS)

    assert arm.aside == before and not pacer.machine.costs(1, 50).forwards.times(4)
    assert pacer.ledger.excused == 1 and pacer.ledger.forgiven > 0.0


def plain_steps_of_a_plan(odd):
    """A pacer after five plain steps of a plan, the third of which is this one."""
    pacer, learner = learner_of_a_plan()
    pacer.shares, pacer.ledger.balance = {1: 1.2}, 10.0
    usual = [made(1 + i, 1.2e-3, 1e-3) for i in range(5)]

    learner.learn([*usual[:2], odd, *usual[3:]], "auto", METHODS)

    return pacer


def test_a_plain_step_of_a_plan_that_was_disturbed_is_forgiven():
    pacer = plain_steps_of_a_plan(made(3, 12e-3, 1e-3))

    assert abs(pacer.ledger.balance - 10.05) < 1e-9
    assert abs(pacer.ledger.forgiven - 9.0) < 1e-9
    assert abs(pacer.arm("lookup").idle[1]) < 1e-9


def test_so_is_one_whose_forward_was():
    """Against such a forward the whole step would seem to have taken no longer than others."""
    pacer = plain_steps_of_a_plan(made(3, 12e-3, 10e-3))

    assert abs(pacer.ledger.forgiven - 9.0) < 1e-9
    assert abs(pacer.ledger.balance - 10.05) < 1e-9


def test_what_the_controller_took_in_a_plain_step_of_its_plan_is_no_cost_of_asking():
    pacer, learner = learner_of_a_plan()
    pacer.shares = {1: 1.2}
    plan = [made(1, 2.2e-3, 1e-3, own=1e-3), *(made(2 + i, 1.2e-3, 1e-3) for i in range(2))]

    learner.learn(plan, "auto", METHODS)

    assert abs(pacer.arm("lookup").idle[1]) < 1e-9
    assert pacer.book.report()["steps"] == 3
    assert abs(pacer.book.spent - (3 + 1e-3 / 1.2e-3)) < 1e-9


def test_what_a_first_draft_took_is_not_known_where_another_method_extended_it():
    pacer, learner = learner_of_a_plan()
    longer = made(2, 9e-3, 2e-3, [(3, 0), (1, 0)], seq=7)
    longer.attempts = longer.attempts[0], longer.attempts[1]._replace(method="other")
    before = pacer.arm("lookup").beginning

    learner.learn([made(1, 3.6e-3, 2e-3, [(3, 3)]), longer], "auto", METHODS)

    assert pacer.arm("lookup").beginning == before


def test_the_draft_of_one_of_several_sequences_is_short_on_average():
    sums = Sums()
    step = made(1, 3e-3, 2e-3, [(8, 3)])
    step.sequences, step.rows = 4, 12

    sums.add(step, 3e-3, 1.0)

    assert sums.beside == {("lookup", 2): [1e-3]}


def test_methods_after_the_first_are_asked_where_it_offers_nothing():
    pacer, learner = learner_of_a_plan()
    second = pacer.arm("second")
    memory = learner.memories[0]
    memory.track.arms += (second,)
    memory.grants += (Grant(second, 4, 0.3),)

    steps = [made(1, 3e-3, 2e-3, [(3, 3)], own=1e-4), *(made(2 + i, 1.2e-3, 1e-3) for i in range(3))]
    learner.learn(steps, "auto", {**METHODS, "second": frozenset({"deterministic"})})

    assert (pacer.arm("lookup").chances, second.chances) == (4, 3)
    assert second.offering < 1.0


def test_what_steps_cost_in_which_a_method_offers_nothing_is_known():
    pacer, learner = learner_of_a_plan()

    learner.learn([made(1 + i, 1.32e-3, 1e-3, own=0.0) for i in range(4)], "auto", METHODS)

    assert abs(pacer.arm("lookup").idle[1] - 0.1) < 1e-9
