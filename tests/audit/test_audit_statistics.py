"""False alarms, the bias that is printed, dependence of draws, and the tree of texts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from spec_audit.checks.distributions import CELL_ALPHA
from spec_audit.statistics import (
    LOOKS,
    compare_texts,
    interval,
    repeated_more,
    smallest_bias,
    symbol_level,
    worse_than,
)
from spec_audit.trie import branches, classes

AUDITS = 200


def draw(rng, number, share, positions=3):
    """Texts of words that are drawn independently, after an equal beginning."""
    words = np.array(["one ", "two ", "six "])
    rows = rng.choice(3, size=(number, positions), p=[share, 0.25, 0.75 - share])
    return ["the " + "".join(words[row]) for row in rows]


@pytest.mark.slow
def test_at_most_four_of_a_hundred_audits_of_equal_samples_alarm():
    """Four prompts with three looks each; the other checks of an audit have no chance in them."""
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(100):
        alarm = False
        for _ in range(4):
            arms = [draw(rng, 800, 0.6) for _ in range(2)]
            for part, spent in LOOKS:
                counts = [Counter(arm[: round(part * 800)]) for arm in arms]
                alarm |= compare_texts(*counts).chance < CELL_ALPHA * spent
        alarms += alarm

    assert alarms <= 4


def test_p_values_of_equal_samples_are_not_too_small():
    rng = np.random.default_rng(2)
    chances = [compare_texts(Counter(draw(rng, 300, 0.6)), Counter(draw(rng, 300, 0.6))).chance for _ in range(200)]

    assert sum(chance < 0.1 for chance in chances) <= 30


@pytest.mark.parametrize("number", [600, 6000])
def test_the_printed_bias_is_found_in_99_percent_of_audits(number):
    rng, level = np.random.default_rng(number), symbol_level(CELL_ALPHA)
    bias = smallest_bias(0.6, number, level)
    found_in, limit = 0, CELL_ALPHA * LOOKS[-1][1]
    for _ in range(AUDITS):
        plain, drafts = rng.binomial(number, 0.6), rng.binomial(number, 0.6 + bias)
        samples = ({"ab": int(k), "ac": int(number - k)} for k in (plain, drafts))
        found_in += compare_texts(*samples).chance < limit

    assert found_in >= 0.97 * AUDITS


def test_budgets_find_what_they_promise():
    level = symbol_level(CELL_ALPHA)

    assert smallest_bias(0.6, 6000, level) < 0.06
    assert smallest_bias(0.6, 25_000, level) < 0.03
    assert smallest_bias(0.6, 40, level) is None
    assert smallest_bias(0.6, 0, level) is None


def test_every_printed_bias_grows_with_fewer_draws():
    biases = [smallest_bias(0.6, number, 1e-4) for number in (500, 1000, 4000, 16_000)]

    assert biases == sorted(biases, reverse=True)


@pytest.mark.parametrize("lag", [1, 4])
def test_repeated_draws_are_found(lag):
    rng = np.random.default_rng(3)
    independent = draw(rng, 400, 0.6)
    blocks = [independent[i : i + lag] for i in range(0, 200, lag)]
    repeated = [text for block in blocks for text in block * 2]

    assert repeated_more(independent, lag) > 1e-3
    assert repeated_more(repeated, lag) < 1e-6


def test_equal_draws_say_nothing_of_their_dependence():
    assert repeated_more(["a"] * 50, 1) == 1.0
    assert repeated_more([], 1) == 1.0


def test_branches_are_where_texts_go_on_differently():
    first, second = Counter({"abc": 30, "abd": 20}), Counter({"abc": 20, "abd": 25, "x": 5})
    tree = {branch.beginning: branch.counts for branch in branches(first, second)}

    assert tree == {"": {"a": (50, 45), "x": (0, 5)}, "ab": {"c": (30, 20), "d": (20, 25)}}


def test_a_text_that_ends_is_a_branch_too():
    tree = [branch.counts for branch in branches(Counter({"ab": 30, "abc": 30}), Counter({"ab": 50}))]

    assert tree == [{"": (30, 50), "c": (30, 0)}]


def test_classes_keep_every_draw():
    rng = np.random.default_rng(4)
    first, second = Counter(draw(rng, 500, 0.4, 6)), Counter(draw(rng, 400, 0.4, 6))
    parts = classes(first, second)

    assert [sum(column) for column in zip(*parts, strict=True)] == [500, 400]
    assert all(sum(pair) >= 20 for pair in parts)
    assert classes({}, {}) == [(0, 0)]


def test_differences_are_judged_against_the_floor():
    assert worse_than(8, 8, (24, 0)) < 1e-4
    assert worse_than(2, 8, (24, 6)) > 0.1


def test_an_interval_contains_its_median():
    low, high = interval([1.0, 1.1, 1.2, 1.3, 5.0], 0)

    assert low <= 1.2 <= high
    assert interval([2.0], 0) == (2.0, 2.0)
