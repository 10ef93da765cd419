"""Several methods, and several sequences: who drafts how much."""

from __future__ import annotations

import pytest
from spec_control.arm import LOST
from spec_control.choice import FIRST
from spec_control.pacer import Pacer
from spec_control.track import Track

from tests.control.pacing import lengths, measured, track


@pytest.fixture
def pacer():
    made = Pacer()
    measured(made, aside={"cheap": 0.01, "dear": 0.6})
    return made


def test_the_method_with_the_most_tokens_per_time_drafts(pacer):
    """A dear one that is right often before a cheap one that is right seldom, and the other way round."""
    assert "dear" in lengths(pacer.plan([track(pacer, cheap=0.05, dear=0.95)], 1, 100)[0])
    assert lengths(pacer.plan([track(pacer, dear=0.5, cheap=0.9)], 1, 100)[0]).keys() == {"cheap"}


def test_nobody_drafts_where_nobody_pays(pacer):
    assert lengths(pacer.plan([track(pacer, cheap=0.02, dear=0.02)], 1, 100)[0]) == {}
    assert pacer.reason == "not paying"


def test_a_cheap_method_before_a_better_one_must_offer_more_than_that(pacer):
    """It is asked at the price of the other's forecast, which is higher than its own would be."""
    pacer.arm("cheap").priced = True
    alone = pacer.plan([track(pacer, cheap=0.5)], 1, 100)[0][0].price
    grants = pacer.plan([track(pacer, cheap=0.5, dear=0.97)], 1, 100)[0]

    assert [grant.arm.name for grant in grants] == ["cheap", "dear"]
    assert grants[0].price > alone


def test_of_equal_methods_the_users_first_drafts():
    pacer = Pacer()
    measured(pacer, aside={"a": 0.05, "b": 0.05})

    assert next(iter(lengths(pacer.plan([track(pacer, a=0.8, b=0.8)], 1, 100)[0]))) == "a"
    assert next(iter(lengths(pacer.plan([track(pacer, b=0.8, a=0.8)], 1, 100)[0]))) == "b"


def test_a_method_that_has_not_drafted_for_long_is_tried_while_another_pays(pacer):
    """Once the income covers what that loses, and what the other would have gained."""
    pacer.arm("dear").since = pacer.every
    assert "dear" not in lengths(pacer.plan([track(pacer, cheap=0.9, dear=0.1)], 1, 100)[0])

    pacer.arm("dear").since = 10 * pacer.every
    assert lengths(pacer.plan([track(pacer, cheap=0.9, dear=0.1)], 1, 100)[0]) == {"dear": 2}


def test_rows_go_to_the_sequences_whose_drafts_survive():
    """One method, four sequences: lengths by survival, none where drafts are wrong."""
    pacer = Pacer()
    measured(pacer, batch=4)
    rates = (0.95, 0.9, 0.5, 0.02)
    grants = pacer.plan([track(pacer, a=rate) for rate in rates], 4, 100)
    found = [lengths(grant).get("a", 0) for grant in grants]

    assert found == sorted(found, reverse=True)
    assert found[0] > found[2] and found[3] == 0


def test_what_is_granted_does_not_depend_on_the_order_of_sequences():
    pacer = Pacer()
    measured(pacer, batch=3)
    rates = (0.9, 0.6, 0.3)
    forward = [lengths(g) for g in pacer.plan([track(pacer, a=rate) for rate in rates], 3, 100)]
    backward = [lengths(g) for g in pacer.plan([track(pacer, a=rate) for rate in rates[::-1]], 3, 100)]

    assert forward == backward[::-1]


def test_a_sequence_without_methods_gets_nothing_beside_others():
    pacer = Pacer()
    measured(pacer, batch=2)
    grants = pacer.plan([track(pacer, a=0.9), Track(())], 2, 100)

    assert lengths(grants[0]) and not grants[1]


def test_a_batch_whose_rows_are_dear_drafts_less():
    """The same acceptance: rows that cost nothing beside one sequence cost their share beside eight."""
    found = {}
    for row in (0.01, 0.6):
        pacer = Pacer()
        measured(pacer, batch=8, row=row)
        grants = pacer.plan([track(pacer, a=0.7) for _ in range(8)], 8, 100)
        found[row] = sum(lengths(g).get("a", 0) for g in grants)

    assert found[0.6] < found[0.01] / 2


def test_a_draft_that_could_lose_more_than_there_is_is_shorter_or_none():
    pacer = Pacer()
    measured(pacer, row=0.5)
    wanted = lengths(pacer.plan([track(pacer, a=0.97)], 1, 100)[0])["a"]
    pacer.ledger.balance = 0.6
    shortest = lengths(pacer.plan([track(pacer, a=0.97)], 1, 100)[0])["a"]
    pacer.ledger.balance = -0.1

    assert shortest == 1 < wanted
    assert pacer.plan([track(pacer, a=0.97)], 1, 100) == [()]
    assert pacer.reason == "repaying"


def test_trees_count_with_all_their_rows():
    """A method whose drafts have three rows for each token of their longest path is worth less."""
    pacer = Pacer()
    measured(pacer, row=0.2)
    arm = pacer.arm("a")
    chain = arm.time(pacer.machine.costs(1, 100), 4)
    for _ in range(60):
        arm.branched(12, 4)

    assert arm.branching == pytest.approx(3, abs=0.05)
    assert arm.time(pacer.machine.costs(1, 100), 4) > chain + 4 * 0.2


def test_the_longest_draft_of_a_method_is_learned_and_may_grow():
    """Asked for more, it ends at four: forecasts go no further, and one more is granted to see."""
    pacer = Pacer()
    measured(pacer, row=0.01)
    text = track(pacer, a=0.97)
    arm = pacer.arm("a")
    for _ in range(5):
        arm.ended(4, 16)

    pacer.ledger.balance = pacer.ledger.balance_max
    assert lengths(pacer.plan([text], 1, 100)[0]) == {"a": 5}
    arm.ended(5, 5)
    assert lengths(pacer.plan([text], 1, 100)[0])["a"] > 5


def test_of_methods_that_have_gained_the_one_that_gained_most_drafts():
    """Whatever is expected: the one that is right more often is asked more seldom, and takes time when it is not."""
    pacer = Pacer()
    measured(pacer, aside={"often": 0.05, "seldom": 0.05})
    often, seldom = pacer.arm("often"), pacer.arm("seldom")
    for arm, gain, offering in ((often, 1.0, 0.9), (seldom, 1.5, 0.3)):
        arm.gain, arm.offering, arm.chances = gain, offering, 100

    assert next(iter(lengths(pacer.plan([track(pacer, seldom=0.95, often=0.9)], 1, 100)[0]))) == "often"
    seldom.offering = 0.9
    assert next(iter(lengths(pacer.plan([track(pacer, seldom=0.95, often=0.9)], 1, 100)[0]))) == "seldom"


def test_a_draft_so_short_that_it_gains_nothing_is_not_made():
    """Two rows cost two steps: with little in the ledger only such a draft could be paid for."""
    pacer = Pacer()
    measured(pacer, row=0.5, aside={"a": 0.5})
    assert lengths(pacer.plan([track(pacer, a=0.97)], 1, 100)[0])["a"] > 2

    pacer.ledger.balance = 1.0

    assert lengths(pacer.plan([track(pacer, a=0.97)], 1, 100)[0]) == {}


def test_a_new_method_of_a_list_is_asked_for_little_and_with_a_full_ledger(pacer):
    new = pacer.arm("new")
    both = [track(pacer, cheap=0.2, new=0.9)]
    assert new.steps == new.chances == 0

    pacer.ledger.balance = 10.0
    assert "new" not in lengths(pacer.plan(both, 1, 100)[0])
    pacer.ledger.balance = 20.0

    assert lengths(pacer.plan(both, 1, 100)[0])["new"] == FIRST


def test_a_method_that_nobody_knows_is_probed_with_a_full_ledger():
    pacer = Pacer()
    measured(pacer, aside={"known": 0.6})
    new = pacer.arm("new")
    new.since = pacer.arm("known").since + 1
    both = [track(pacer, known=0.02, new=0.02)]

    pacer.ledger.balance = 15.0
    assert "new" not in lengths(pacer.plan(both, 1, 100)[0])
    pacer.ledger.balance = 20.0

    assert "new" in lengths(pacer.plan(both, 1, 100)[0])


@pytest.mark.parametrize(("beginning", "probed"), [(0.5, True), (15.0, False)])
def test_first_probes_that_cost_much_wait_for_the_income(beginning, probed):
    pacer = Pacer()
    measured(pacer, row=0.3)
    pacer.arm("a").steps, pacer.arm("a").beginning = 1, beginning
    new = Track((pacer.arm("a"),))
    pacer.arm("a").shape.rate = 0.02

    assert bool(pacer.plan([new], 1, 100)[0]) is probed


def test_of_several_sequences_too_a_method_that_stops_by_the_price_drafts_where_it_has_gained():
    """Drafts of a quarter of its tokens do not pay by their rate; but it stops where it is not sure."""
    pacer = Pacer()
    measured(pacer, batch=4, row=0.3)
    arm = pacer.arm("a")
    tracks = [track(pacer, a=0.25) for _ in range(4)]
    arm.gain = 0.5
    assert not any(pacer.plan(tracks, 4, 100))

    arm.priced = True

    assert all(pacer.plan(tracks, 4, 100))


def test_a_method_that_may_be_tried_at_once_does_not_wait_for_one_that_may_not():
    """The other one has drafted before it, and lost what its first drafts may lose."""
    pacer = Pacer()
    measured(pacer, row=0.6, aside={"a": 0.1, "b": 0.1})
    for arm in pacer.arms.values():
        arm.steps, arm.beginning, arm.shape.rate = 4, 0.5, 0.5
        arm.stood(0.0)
    pacer.arm("b").since, pacer.arm("b").lost = 50, LOST
    both = Track(tuple(pacer.arms.values()))

    assert list(lengths(pacer.plan([both], 1, 100)[0])) == ["a"]
    assert pacer.probe is pacer.arm("a")


def test_a_method_that_is_being_tried_is_tried_further_before_the_next_one():
    """What one of them brings is known after some drafts, not after one of each."""
    pacer = Pacer()
    measured(pacer, row=0.6, aside={"a": 0.1, "b": 0.1})
    for arm, chances in ((pacer.arm("a"), 5), (pacer.arm("b"), 0)):
        arm.steps = arm.chances = chances
        arm.beginning, arm.shape.rate = 0.5, 0.5
        arm.stood(0.0)
    pacer.arm("b").since = 50
    both = Track(tuple(pacer.arms.values()))

    assert list(lengths(pacer.plan([both], 1, 100)[0])) == ["a"]
    assert pacer.probe is pacer.arm("a")


def test_a_method_that_pays_drafts_as_long_as_usual_where_the_ledger_does_not_allow_more(pacer):
    """By its rate such a draft is not expected to gain, but its drafts have."""
    measured(pacer, row=0.5)
    arm = pacer.arm("a")
    arm.priced, arm.gain, arm.steps, arm.chances, arm.used = True, 1.0, 100, 100, 0.2
    pacer.ledger.balance = 8.0
    one = track(pacer, a=0.3)
    one.gains["a"] = 1.0

    assert arm.usual(16) <= lengths(pacer.plan([one], 1, 100)[0])["a"] < 8
    arm.used = 1.0
    assert pacer.plan([one], 1, 100) == [()]
