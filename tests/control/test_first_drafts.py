"""What is not known to pay: first drafts and probes, prices of new sequences, and how long such plans hold."""

from __future__ import annotations

import pytest
from spec_control.arm import LOST, TRIALS
from spec_control.choice import LEFT, SPARED, YOUNG
from spec_control.hold import CHEAP
from spec_control.pacer import Pacer
from spec_control.service import TEXTS
from spec_control.track import Done, Grant, Track

from tests.control.pacing import lengths, measured, track


def new(pacer, many=1):
    """Sequences for which nothing is known of method a; its tokens may gain, but are not expected to."""
    pacer.arm("a").shape.rate = 0.5
    return [Track((pacer.arm("a"),)) for _ in range(many)]


def probed(pacer, tracks):
    return [bool(grants) for grants in pacer.plan(tracks, len(tracks), 100)]


@pytest.fixture
def dear():
    """Rows that cost as much as tokens of half of the drafts bring."""
    made = Pacer()
    measured(made, row=0.6)
    made.arm("a").steps = 1
    made.arm("a").stood(0.0)
    return made


def test_a_method_is_tried_until_its_first_drafts_have_lost_their_share(dear):
    tracks = new(dear)
    assert probed(dear, tracks) == [True]

    dear.arm("a").lost = LOST

    assert probed(dear, tracks) == [False]
    assert dear.quiet > 100


def test_a_method_whose_tokens_are_rejected_is_not_tried_further(dear):
    tracks = new(dear)
    for _ in range(30):
        dear.arm("a").shape.learn_rate(1, 0)

    assert probed(dear, tracks) == [False]


def test_a_method_that_has_gained_is_not_on_trial_for_longer_than_others(dear):
    tracks = new(dear)
    dear.arm("a").steps, dear.arm("a").lost = TRIALS, 1.0
    assert probed(dear, tracks) == [True]

    dear.arm("a").lost = -1.0

    assert probed(dear, tracks) == [False]


@pytest.mark.parametrize(("beginning", "turns"), [(0.5, True), (5.0, False)])
def test_first_drafts_that_take_long_stay_with_one_sequence(beginning, turns):
    pacer = Pacer()
    measured(pacer, batch=4, row=2.4)
    pacer.arm("a").steps, pacer.arm("a").beginning = 1, beginning
    tracks = new(pacer, many=4)
    tracks[2].rating(pacer.arm("a"))
    pacer.arm("a").shape.rate = 0.5
    found = set()
    for _ in range(4):
        pacer._unprobed = float("inf")
        found.add(tuple(probed(pacer, tracks)))

    assert (len(found) == 4) is turns
    assert turns or found == {(False, False, True, False)}


def test_a_probe_of_one_of_several_sequences_is_longer_where_the_method_stops_by_the_price():
    pacer = Pacer()
    measured(pacer, batch=4, row=2.4)
    arm = pacer.arm("a")
    costs = pacer.machine.costs(4, 100)
    assert pacer.choice.probe_length(costs, arm) == 2

    arm.priced = True

    assert pacer.choice.probe_length(costs, arm) == 8
    assert pacer.choice.probe_length(pacer.machine.costs(1, 100), arm) == 2


@pytest.mark.parametrize(("aside", "length"), [(0.1, 2), (2.2, 3), (3.5, 4), (90.0, 2)])
def test_a_probe_is_as_long_as_it_must_be_to_gain(aside, length):
    """Accepted tokens that take longer than plain ones would show nothing, whoever drafts them."""
    pacer = Pacer()
    measured(pacer, row=0.1, aside={"a": aside})

    assert pacer.choice.probe_length(pacer.machine.costs(1, 100), pacer.arm("a")) == length


def test_a_method_that_has_drafted_little_for_a_sequence_need_not_be_as_sure():
    """Otherwise one that learns from its drafts of this text would never draft."""
    pacer = Pacer()
    arm = pacer.arm("a")
    made = Track((arm,))
    assert made.price(arm, 0.9) == 0.5
    assert made.price(arm, 0.2) == 0.2

    made.rating(arm).learn(8, 8)

    assert made.price(arm, 0.9) == 0.9


def test_steps_in_which_a_method_offers_nothing_count_against_it():
    pacer = Pacer()
    measured(pacer)
    arm = pacer.arm("a")
    arm.priced, arm.gain = True, 0.5
    one = track(pacer, a=0.95)
    assert probed(pacer, [one]) == [True]

    arm.asked(0.0, 200)
    arm.idled(1, 0.2)
    pacer._unprobed = 0.0

    assert probed(pacer, [one]) == [False]
    assert pacer.reason == "not paying"


def test_a_list_of_methods_that_nobody_knows_waits_for_a_full_ledger():
    """It is not planned again in every step until then."""
    pacer = Pacer()
    measured(pacer, row=0.9, aside={"a": 0.1, "b": 0.1})
    for arm in pacer.arms.values():
        arm.steps = arm.chances = 0
        arm.shape.rate = 0.02
        arm.stood(0.0)
    pacer.ledger.balance = 10.0

    assert pacer.plan([Track(tuple(pacer.arms.values()))], 1, 100) == [()]
    assert pacer.quiet == 800


def test_of_several_sequences_one_that_may_be_drafted_for_gets_the_first_drafts():
    pacer = Pacer()
    measured(pacer, batch=4)
    arm = pacer.arm("a")
    arm.steps = 0
    grant = (Grant(arm, 2, 0.3),)

    for _ in range(4):
        assert pacer.choice._first_tries(new(pacer, many=4), [(), grant, (), ()]) == [(), grant, (), ()]


def test_a_probe_that_gained_is_followed_by_another(dear):
    tracks = new(dear)
    assert probed(dear, tracks) == [True]

    dear.held([(3.0, 2.0)], plain=0, own=0.0, compared=False)
    dear.arm("a").lost = LOST

    assert probed(dear, tracks) == [True]
    assert probed(dear, tracks) == [False]


def test_what_a_first_draft_took_is_known_though_it_is_not_charged():
    pacer = Pacer()
    measured(pacer)
    arm = pacer.arm("a")
    balance = pacer.ledger.balance

    pacer.settle(Done(1, 100, 3, 1, {arm: 2}, cold=1, stands=1), 1.2, 11.2)

    assert arm.beginning > 4.0
    assert pacer.ledger.balance > balance - 1.0


def test_what_a_first_draft_took_does_not_say_that_the_text_loses():
    """It is spent, whatever comes next; and so it is counted for the run."""
    pacer = Pacer()
    measured(pacer)

    tokens, spent = pacer.settle(Done(1, 100, 3, 1, {pacer.arm("a"): 2}, cold=1, stands=1), 1.2, 2.6)

    assert tokens == 1.0 and spent == pytest.approx(1.25 / 1.05, rel=0.05)
    assert pacer.ledger.balance == pytest.approx(pacer.ledger.balance_max - 1.5, abs=0.1)


@pytest.mark.parametrize("chances, enough", [(0, 6.0 / SPARED), (YOUNG, 6.0 + LEFT)])
def test_a_first_draft_that_takes_most_of_the_ledger_is_not_made(chances, enough):
    """What follows it would have nothing to lose; a method that is known to pay needs less."""
    pacer = Pacer()
    measured(pacer)
    arm = pacer.arm("a")
    arm.stood(0.0)
    arm.beginning, arm.gain, arm.steps, arm.chances = 6.0, 0.5, 100, chances
    fresh = Track((arm,))
    pacer.ledger.balance = enough + 1.0
    assert pacer.choice.hopeful(pacer.machine.costs(1, 100))
    pacer.ledger.balance = enough - 1.0
    assert not pacer.choice.hopeful(pacer.machine.costs(1, 100))
    assert lengths(pacer.plan([fresh], 1, 100)[0]) == {}
    assert pacer.quiet == 100, "until the ledger has enough"


def lost_in(dear, texts):
    """A method that has had its trials, and drafted for so many sequences."""
    arm = dear.arm("a")
    arm.steps, arm.lost, arm.gain, arm.texts = TRIALS, LOST, -0.5, texts
    return arm


def test_a_method_that_lost_is_tried_again_in_the_next_texts(dear):
    """The first text of a run may be a difficult one."""
    arm = lost_in(dear, TEXTS - 1)
    assert probed(dear, new(dear)) == [True]

    arm.texts = TEXTS
    assert probed(dear, new(dear)) == [False]


def test_the_texts_that_a_method_drafts_for_are_counted(dear):
    arm = dear.arm("a")
    for text in new(dear, 2):
        text.rating(arm)
        text.rating(arm)

    assert arm.texts == 2


def test_it_is_not_tried_again_in_a_text_in_which_it_loses(dear):
    lost_in(dear, 1)
    (one,) = new(dear)
    one.lost = CHEAP

    assert probed(dear, [one]) == [False]
    assert not dear.joining, "the next text ends the rest"


def test_it_is_not_tried_again_for_one_of_several(dear):
    """Each of their steps loses little, so that this would go on for long."""
    measured(dear, batch=3, row=0.6)
    dear.arm("a").steps = 1
    assert sum(probed(dear, new(dear, 3))) == 1
    lost_in(dear, 1)

    assert probed(dear, new(dear, 3)) == [False] * 3
    assert dear.joining, "a text that begins does not end the rest"


def test_it_is_not_tried_again_with_little_in_the_ledger(dear):
    lost_in(dear, 1)
    dear.ledger.balance = dear.ledger.kept - 0.1

    assert probed(dear, new(dear)) == [False]


def test_nobody_is_asked_again_for_a_text_that_begins_where_nobody_would_draft_for_it(dear):
    """Each of these plans would take as long as a plain step or two."""
    dear.arm("a").lost = LOST

    assert probed(dear, new(dear)) == [False]
    assert dear.joining


def test_where_the_ledger_cuts_drafts_short_nobody_waits_longer_than_until_it_allows_more():
    pacer = Pacer()
    measured(pacer, aside={"a": 3.0})
    arm = pacer.arm("a")
    arm.stood(0.0)
    arm.shape.rate, pacer.ledger.balance = 0.9, 6.0

    assert pacer.plan([Track((arm,))], 1, 100) == [()]
    assert pacer.choice.cut and pacer.quiet == 400


def test_a_surprise_is_looked_at_once():
    pacer = Pacer()
    measured(pacer)
    pacer.machine.surprised = True

    pacer.rested(1)
    assert pacer.schedule.until == 1
    pacer.rested(8)
    assert pacer.schedule.until > 1


@pytest.mark.parametrize("longest", [3, 16])
def test_a_plan_does_not_say_what_rows_are_worth_that_were_never_measured(longest):
    """Their time does not say how fast the machine is; after a few such steps the plan ends."""
    pacer = Pacer()
    measured(pacer, row=0.05, longest=longest)
    pacer.arm("a").chances, pacer.schedule.until = 200, 60
    assert lengths(pacer.plan([track(pacer, a=0.97)], 1, 100)[0])["a"] > 3

    assert pacer.hold == 59
    assert max(pacer.shares) == 1 + longest


def test_a_probe_that_is_expected_to_pay_holds_until_it_is_rejected(dear):
    tracks = new(dear)
    dear.arm("a").shape.rate = 0.62
    assert probed(dear, tracks) == [True]

    assert dear.hold > 0
    assert dear.loss == pytest.approx(0.5 * dear.risk)


def test_one_step_may_lose_more_where_it_has_drafts_for_several_sequences():
    pacer = Pacer()

    assert pacer.choice.risk(pacer.machine.costs(1, 100)) == pacer.ledger.risk == 4.0
    assert pacer.choice.risk(pacer.machine.costs(4, 100)) == 5.0


@pytest.mark.parametrize("gain, served", [(0.12, True), (0.03, False)])
def test_what_a_method_takes_where_it_does_not_draft_counts_only_in_such_steps(dear, gain, served):
    """It drafts in 70 % of the steps, and takes 0.11 plain steps in each of the others."""
    arm = dear.arm("a")
    arm.steps, arm.gain, arm.offering, arm.texts, arm.standing = 100, gain, 0.7, TEXTS, 0.11 * dear.machine.plain

    assert dear.service.admitted([arm]) == ([arm] if served else [])
