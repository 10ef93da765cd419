"""The helper functions of rules, at their limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from spec_rules.block import ratios
from spec_rules.coins import Uniforms, coins, inverse
from spec_rules.distributions import Case, normalised, residual
from spec_rules.k_seq import left_over, overlap, taken, threshold
from spec_rules.traversal import chance
from spec_rules.typical import entropy

from spec_core import Draft, Sampling, Sequence
from spec_core.contract.step import Step
from spec_core.sampling.noise import uniform
from spec_core.testing import ToyTarget
from spec_core.toolkit import drafted_from

JUST_BELOW_ONE = 1 - 2**-53
P, Q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.1, 0.6, 0.1, 0.2])


def test_a_residual_is_what_the_draft_left():
    assert residual(P, Q) == pytest.approx([0.8, 0, 0.2, 0])


def test_nothing_left_is_the_distribution_itself():
    """p = q is never rejected, but for rounding."""
    assert residual(P, P) is P
    assert normalised(np.zeros(4), otherwise=Q) is Q


@pytest.mark.parametrize("u", [2**-53, 0.3, JUST_BELOW_ONE])
@pytest.mark.parametrize(
    "weights", [[0, 0, 1.0, 0], [0, 1e-300, 0, 0], [0, 1 / 3, 0, 1 / 3, 1 / 3, 0], [0.1] * 10 + [0]]
)
def test_a_draw_never_gives_an_index_without_mass(weights, u):
    weights = np.array(weights)

    assert weights[inverse(weights, u)] > 0


def test_a_draw_inverts_the_running_sum():
    """Unnormalised weights; each index has its share of the unit interval."""
    weights = np.array([2.0, 0.0, 1.0, 1.0])

    assert [inverse(weights, u) for u in (0.01, 0.49, 0.51, 0.74, 0.76)] == [0, 0, 2, 2, 3]


@pytest.mark.parametrize("u", [2**-53, 0.5, JUST_BELOW_ONE])
def test_what_the_target_never_says_is_never_accepted_and_what_it_says_as_often_always_is(u):
    assert not Uniforms(iter([u])).accept(0.0, 0.7)
    assert Uniforms(iter([u])).accept(0.7, 0.5)
    assert Uniforms(iter([u])).accept(1.0, 1.0)


def test_coins_of_a_step_are_its_own():
    """New at every position and for every request, whatever its seed and stream; and not the noise of tokens."""
    step = Step(ToyTarget(), {}, phase="accept", private=True)
    at = lambda tokens, **more: list(
        coins(step, Sequence(tokens, 1, 9, Sampling(), None, **{"seed": 3, **more}), 4).values
    )
    here = at([1, 2])
    others = [at([1, 2, 3]), at([1, 2], seed=4), at([1, 2], number=1), at([1, 2], noise_stream=1), at([1, 2], offset=1)]

    assert here == at([1, 2])
    assert not set(here) & {*(coin for other in others for coin in other), *uniform(3, 1, np.arange(99))}
    assert len(set(here)) == 10


def test_rows_in_float32_are_made_to_sum_to_one():
    rows = torch.softmax(torch.linspace(-9, 3, 1000), -1)[None]
    draft = Draft([3], probs=rows)

    assert float(rows[0].double().sum()) != 1
    assert drafted_from(draft, 0, 1000).sum() == pytest.approx(1, abs=1e-15)


def test_children_come_in_the_order_drawn_and_equal_ones_too():
    case = Case(Draft([5, 5, 7, 1], parents=[-1, -1, 0, 0]), None, None)

    assert [case.children(node) for node in (-1, 0, 1)] == [[0, 1], [2, 3], []]
    assert Case(Draft([5, 6]), None, None).children(0) == [1]
    assert Case(Draft([5, 6]), None, None).children(1) == []


def test_ratios_are_capped_at_one_each():
    """r_i = min(1, r_{i-1} p / q), by hand: 0.3 / 0.6, then 5 times that, then 2 times one."""
    case = Case(Draft([1, 0, 2]), lambda row: P, lambda j: Q)

    assert ratios(case) == pytest.approx([1, 0.5, 1, 1])


def test_the_chance_of_a_certain_path_is_one_exactly():
    """The test at the root never fails by rounding."""
    assert chance(0.1234567, 1.0) == 1.0
    assert chance(0.0, 1.0) == 1.0
    assert chance(0.25, 0.5) == pytest.approx(1 / 3)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_seq_finds_its_threshold(k):
    """1 - (1 - beta)^k = rho beta; for one draft rho is 1, and never more than p is taken."""
    rho = threshold(P, Q, k)
    beta = overlap(P, Q, rho)

    assert 1 <= rho <= k
    assert 1 - (1 - beta) ** k == pytest.approx(rho * beta, abs=1e-8)
    assert taken(beta, k) <= rho
    assert left_over(P, Q, rho, k).sum() == pytest.approx(1)


def test_k_seq_of_distributions_without_a_common_token():
    p, q = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    rho = threshold(p, q, 3)

    assert overlap(p, q, rho) == 0
    assert left_over(p, q, rho, 3) == pytest.approx(p)


def test_entropy_is_in_nats_and_knows_zeros():
    assert entropy(np.array([0.5, 0.5, 0.0])) == pytest.approx(np.log(2))
    assert entropy(np.array([0.0, 1.0])) == 0
