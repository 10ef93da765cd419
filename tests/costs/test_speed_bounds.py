"""Bounds of a speedup, on costs and acceptances that can be enumerated; nothing is timed."""

from __future__ import annotations

import itertools
import random

import pytest
from spec_costs.bounds import Bound, as_drafted, break_even, constant_length, perfect_bound, tokens
from spec_costs.curve import Curve, Curves
from spec_costs.limits import limits, sentence

from spec_core import UsageError

LINEAR = Curve({n: 1.0 + 0.5 * (n - 1) for n in range(1, 18)})
"""Each further row costs half a step."""
FREE = Curve(dict.fromkeys(range(1, 18), 1.0))
"""Rows cost nothing, as on a large GPU."""
DEAR = Curve({n: 1.5 * n - 0.5 for n in range(1, 18)})
"""Each further row costs more than a plain step."""


def test_if_rows_are_free_a_perfect_drafter_saves_all_its_tokens():
    assert perfect_bound(FREE, 16) == Bound(17.0, 16)


def test_the_best_length_lies_before_a_jump_of_the_cost():
    """Products in tiles of four rows: five rows cost as much as eight."""
    tiles = Curve({n: float(-(-n // 4)) for n in range(1, 10)})

    assert perfect_bound(tiles, 8) == Bound(4.0, 3)


def test_if_a_row_costs_a_step_no_draft_pays():
    assert perfect_bound(DEAR, 16) == Bound(1.0, 0)
    assert break_even(DEAR, 1) is None


def test_the_drafter_s_own_time_lowers_the_bound():
    assert perfect_bound(FREE, 3, Curve({0: 0, 1: 0.5, 3: 1.5})) == Bound(1.6, 3)
    assert perfect_bound(FREE, 3, Curve({0: 0, 1: 1.0, 3: 3.0})) == Bound(1.0, 0)


def test_the_acceptance_bound_is_the_expected_length_over_the_cost():
    """0.8 and 0.5: E(1) = 1.8 at 1.5 steps, E(2) = 2.2 at 2 steps."""
    assert constant_length(LINEAR, [0.8, 0.5]) == Bound(pytest.approx(1.8 / 1.5), 1)


def test_steps_without_a_draft_count_in_the_acceptance_bound():
    """Half of the steps draft one token, which is always accepted: three tokens for 1.5 and 1.1 plain steps."""
    drafting = Curve({0: 0.1, 1: 0.0})

    assert constant_length(LINEAR, [1.0], drafting, share=0.5) == Bound(pytest.approx(1.5 / (0.75 + 0.55)), 1)


@pytest.mark.parametrize("rates", list(itertools.product([0.0, 0.3, 0.9, 1.0], repeat=3)), ids=str)
def test_the_acceptance_bound_is_the_best_over_all_outcomes(rates):
    """Every pattern of accepted positions with its probability, for every length."""
    best = 1.0
    for k in range(1, 4):
        expected = 0.0
        for pattern in itertools.product([True, False], repeat=k):
            chance = 1.0
            for rate, kept in zip(rates, pattern, strict=False):
                chance *= rate if kept else 1 - rate
            accepted = next((i for i, kept in enumerate(pattern) if not kept), k)
            expected += chance * (accepted + 1)
        best = max(best, expected / LINEAR(k + 1))

    assert constant_length(LINEAR, rates).speedup == pytest.approx(best)


def test_steps_as_they_were_drafted_take_their_usual_time():
    """Three steps: no draft, four tokens with two accepted, and a tree of six tokens in three levels."""
    steps = [(0, 0, 1), (4, 4, 3), (6, 3, 4)]
    drafting = Curve({0: 0.1, 3: 0.3, 4: 0.4})

    assert as_drafted(LINEAR, steps, drafting) == pytest.approx(8 / (1.0 + 0.1 + 3.0 + 0.4 + 4.0 + 0.3))
    assert as_drafted(LINEAR, []) is None


@pytest.mark.parametrize("k", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("step", [LINEAR, FREE], ids=["linear", "free"])
def test_at_the_break_even_acceptance_a_draft_costs_what_it_saves(step, k):
    drafting = Curve({0: 0.0, 16: 0.2})
    even = break_even(step, k, drafting)

    assert even is not None
    assert tokens(even, k) * step(1) / (step(k + 1) + drafting(k)) == pytest.approx(1)


def test_no_mean_of_lengths_exceeds_the_bound_of_a_perfect_drafter():
    """Whatever a controller does: 200 random sequences of steps, all drafts accepted in part or in full."""
    rng = random.Random(0)
    for _ in range(200):
        drafted = [rng.randint(0, 16) for _ in range(20)]
        steps = [(k, k, 1 + rng.randint(0, k)) for k in drafted]

        assert as_drafted(LINEAR, steps) <= perfect_bound(LINEAR, 16).speedup + 1e-12


def test_costs_between_two_numbers_are_linear_and_beyond_the_last_go_on():
    curve = Curve({1: 1.0, 3: 2.0, 5: 6.0})

    assert [curve(n) for n in (1, 2, 3, 4, 5, 7)] == [1.0, 1.5, 2.0, 4.0, 6.0, 10.0]
    assert Curve({2: 3.0})(9) == 3.0
    assert Curve({1: 2.0, 2: 1.0})(4) == 1.0, "a disturbed cost does not fall below zero further out"


def test_a_depth_between_two_depths_has_costs_between_theirs():
    curves = Curves({100: Curve({1: 1.0, 2: 2.0}), 300: Curve({1: 3.0, 2: 6.0})})

    assert [curves.at(d)(2) for d in (50, 100, 200, 300, 900)] == [2.0, 2.0, 4.0, 6.0, 6.0]


def test_a_curve_without_costs_is_refused():
    with pytest.raises(UsageError, match="no cost was measured"):
        Curve({})


def test_the_bounds_are_read_out_in_a_line():
    message = sentence(limits(LINEAR, 4, 1, 64, "ngram"))

    assert message == (
        "ngram: at most 1.67×, if every step drafts 4 tokens and all are accepted; "
        "break-even acceptance by draft length 1: 0.50, 2: 0.62, 4: 0.74"
    )
    assert "1: never" in sentence(limits(DEAR, 2, 1, 64)) and "no draft pays off" in sentence(limits(DEAR, 2, 1, 64))
