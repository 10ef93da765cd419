"""The helper functions of rules, at their limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from spec_rules.block import ratios
from spec_rules.decisions import Draw, Trial, draw, draw_tokens, follow_decision
from spec_rules.distributions import Case, normalise, residual
from spec_rules.k_seq import left_over, overlap, relative_acceptance, threshold
from spec_rules.traversal import chance
from spec_rules.typical import entropy

from spec_core import Draft, Sampling, Sequence
from spec_core.contract.step import Step
from spec_core.contract.verified_step import AcceptStep
from spec_core.sampling.noise import uniform
from spec_core.testing import ToyTarget
from spec_core.toolkit import draft_distribution, draft_distributions

JUST_BELOW_ONE = 1 - 2**-53
P, Q = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64), torch.tensor([0.1, 0.6, 0.1, 0.2], dtype=torch.float64)


def test_a_residual_is_what_the_draft_left():
    assert residual(P, Q).tolist() == pytest.approx([0.8, 0, 0.2, 0])


def test_nothing_left_is_the_distribution_itself():
    """p = q is never rejected, but for rounding."""
    assert torch.equal(residual(P, P), P)
    assert torch.equal(normalise(torch.zeros_like(P), otherwise=Q), Q)


def token_of(weights: list[float], u: float) -> int:
    """Token of the host; a device's is the same."""
    rows = torch.tensor([weights], dtype=torch.float64)
    token = draw(rows[0].numpy(), u)
    assert draw_tokens(rows, torch.tensor([u], dtype=torch.float64)).tolist() == [token]
    return token


@pytest.mark.parametrize("u", [2**-53, 0.3, JUST_BELOW_ONE])
@pytest.mark.parametrize(
    "weights", [[0, 0, 1.0, 0], [0, 1e-300, 0, 0], [0, 1 / 3, 0, 1 / 3, 1 / 3, 0], [0.1] * 10 + [0]]
)
def test_a_draw_never_gives_an_index_without_mass(weights, u):
    assert weights[token_of(weights, u)] > 0


def test_a_draw_inverts_the_running_sum():
    """Unnormalised weights; each index has its share of the unit interval."""
    assert [token_of([2.0, 0.0, 1.0, 1.0], u) for u in (0.01, 0.49, 0.51, 0.74, 0.76)] == [0, 0, 2, 2, 3]


@pytest.mark.parametrize("u", [2**-53, 0.5, JUST_BELOW_ONE])
def test_what_the_target_never_says_is_never_accepted_and_what_it_says_as_often_always_is(u):
    assert not accepts(0.0, 0.7, u)
    assert accepts(0.7, 0.5, u)
    assert accepts(1.0, 1.0, u)


def accepts(p: float, q: float, u: float) -> bool:
    """Whether a trial of one draft keeps it."""
    scalars = torch.tensor([p, q], dtype=torch.float64)
    trial = Trial(*scalars, lambda: Draw((0,), P), lambda: Draw((), P))
    return follow_decision(trial, np.array([u, 0.5])).path == (0,)


def test_coins_of_a_step_are_its_own():
    """New at every position and for every request, whatever its seed and stream; and not the noise of tokens."""
    step = AcceptStep(Step(ToyTarget(), {}, phase="accept", private=True))
    at = lambda tokens, **more: step.coins(Sequence(tokens, 1, 9, Sampling(), None, **{"seed": 3, **more}), 10).tolist()
    here = at([1, 2])
    others = [at([1, 2, 3]), at([1, 2], seed=4), at([1, 2], number=1), at([1, 2], noise_stream=1), at([1, 2], offset=1)]

    assert here == at([1, 2])
    assert not set(here) & {*(coin for other in others for coin in other), *uniform(3, 1, np.arange(99))}
    assert len(set(here)) == 10


def test_rows_in_float32_are_made_to_sum_to_one():
    rows = torch.softmax(torch.linspace(-9, 3, 1000), -1)[None]
    draft = Draft([3], probs=rows)

    assert float(rows[0].double().sum()) != 1
    assert draft_distribution(draft, 0, 1000).sum() == pytest.approx(1, abs=1e-15)
    assert float(draft_distributions(draft, rows).sum()) == pytest.approx(1, abs=1e-15)


def test_children_come_in_the_order_drawn_and_equal_ones_too():
    case = Case(Draft([5, 5, 7, 1], parents=[-1, -1, 0, 0]), None, None)

    assert [case.children(node) for node in (-1, 0, 1)] == [[0, 1], [2, 3], []]
    assert Case(Draft([5, 6]), None, None).children(0) == [1]
    assert Case(Draft([5, 6]), None, None).children(1) == []


def test_ratios_are_capped_at_one_each():
    """r_i = min(1, r_{i-1} p / q), by hand: 0.3 / 0.6, then 5 times that, then 2 times one."""
    case = Case(Draft([1, 0, 2]), lambda row: P, lambda j: Q)

    assert torch.stack(ratios(case)).tolist() == pytest.approx([1, 0.5, 1, 1])


def test_the_chance_of_a_certain_path_is_one_exactly():
    """The test at the root never fails by rounding."""
    certain, half = torch.tensor([1.0, 0.5], dtype=torch.float64)

    assert chance(certain * 0.1234567, certain) == 1.0
    assert chance(certain * 0.0, certain) == 1.0
    assert float(chance(certain * 0.25, half)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_seq_finds_its_threshold(k):
    """1 - (1 - beta)^k = rho beta; for one draft rho is 1, and never more than p is taken."""
    rho = threshold(P, Q, k)
    beta = overlap(P, Q, rho)

    assert 1 <= rho <= k
    assert float(1 - (1 - beta) ** k) == pytest.approx(float(rho * beta), abs=1e-8)
    assert relative_acceptance(beta, k) <= rho
    assert float(left_over(P, Q, rho, k).sum()) == pytest.approx(1)


def test_k_seq_of_distributions_without_a_common_token():
    p, q = torch.eye(2, dtype=torch.float64)
    rho = threshold(p, q, 3)

    assert overlap(p, q, rho) == 0
    assert torch.equal(left_over(p, q, rho, 3), p)


def test_entropy_is_in_nats_and_knows_zeros():
    assert float(entropy(torch.tensor([0.5, 0.5, 0.0]))) == pytest.approx(np.log(2))
    assert entropy(torch.tensor([0.0, 1.0])) == 0
