"""The choice of experts: against the reference, with ties, NaN and infinity."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from ops_library import Router, at, each_isa, here, same, table
from spec_kernels.ops.moe import route_rows as softmax
from spec_kernels.ops.moe import route_sigmoid

pytestmark = pytest.mark.compiles


def route(
    isa: str,
    logits: np.ndarray,
    top: int,
    sigmoid: bool = False,
    bias: np.ndarray | None = None,
    factors: np.ndarray | None = None,
    **rest,
) -> tuple:
    settings = {"normalise": True, "scale": 1.0, "groups": 1, "groups_used": 1} | rest
    rows, experts = logits.shape
    weights, chosen = np.empty((rows, top), np.float32), np.empty((rows, top), np.int32)
    a = Router(experts=experts, top=top, sigmoid=sigmoid, bias=at(bias), factors=at(factors), **settings)
    table(isa).route(ctypes.byref(a), at(logits), experts, rows, at(weights), at(chosen))
    return weights, chosen


def normal(*shape: int) -> np.ndarray:
    return (3 * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(np.float32)


@each_isa
@pytest.mark.parametrize("experts, top", [(4, 2), (8, 8), (128, 8), (512, 10), (33, 1), (64, 64)])
@pytest.mark.parametrize("normalise", [True, False])
def test_softmax_routing_is_the_reference(isa, experts, top, normalise):
    logits = normal(9, experts)
    weights, chosen = softmax(torch.tensor(logits), top, normalise, 1.5)

    got = route(isa, logits, top, normalise=normalise, scale=1.5)

    assert (got[1] == chosen.numpy()).all()
    np.testing.assert_allclose(got[0], weights, rtol=2e-6)


@each_isa
@pytest.mark.parametrize("experts, top, groups, used", [(16, 4, 1, 1), (128, 8, 8, 3), (256, 8, 8, 4), (64, 6, 32, 3)])
@pytest.mark.parametrize("normalise", [True, False])
def test_sigmoid_routing_is_the_reference(isa, experts, top, groups, used, normalise):
    logits, bias = normal(9, experts), normal(experts)
    weights, chosen = route_sigmoid(torch.tensor(logits), torch.tensor(bias), top, normalise, 2.5, groups, used)

    got = route(isa, logits, top, True, bias, normalise=normalise, scale=2.5, groups=groups, groups_used=used)

    assert (got[1] == chosen.numpy()).all()
    np.testing.assert_allclose(got[0], weights, rtol=3e-6)


@each_isa
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("normalise", [True, False])
def test_factors_multiply_the_weights_of_their_experts_and_choose_none(isa, sigmoid, normalise):
    """The sum by which weights are divided is without them."""
    logits, bias, factors = normal(9, 33), normal(33), normal(34)[:33]
    plain, chosen = route(isa, logits, 5, sigmoid, bias, normalise=normalise, scale=1.5)

    got = route(isa, logits, 5, sigmoid, bias, factors, normalise=normalise, scale=1.5)

    assert same(got[1], chosen)
    assert same(got[0], plain * factors[chosen])


@each_isa
@pytest.mark.parametrize("sigmoid", [False, True])
def test_of_equals_the_lowest_number_comes_first(isa, sigmoid):
    logits = np.zeros((1, 40), np.float32)
    logits[0, [7, 21, 39]] = 1

    assert route(isa, logits, 6, sigmoid)[1].tolist() == [[7, 21, 39, 0, 1, 2]]


@each_isa
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_whatever_the_logits_experts_exist_and_differ(isa, sigmoid, groups, bad):
    logits = normal(6, 32)
    logits[1], logits[2, ::2], logits[3, 5] = bad, bad, bad

    _, chosen = route(isa, logits, 12, sigmoid, groups=groups, groups_used=1)

    assert all(len(set(row)) == 12 and min(row) >= 0 and max(row) < 32 for row in chosen.tolist())


@each_isa
def test_a_row_is_routed_the_same_alone(isa):
    logits = normal(7, 60)
    together = route(isa, logits, 5)
    alone = [route(isa, logits[[r]], 5) for r in range(7)]

    assert same(together[0], np.concatenate([w for w, _ in alone]))
    assert same(together[1], np.concatenate([c for _, c in alone]))


@pytest.mark.parametrize("sigmoid", [False, True])
def test_all_instruction_sets_route_alike(sigmoid):
    logits, bias, factors = normal(20, 100), normal(100), normal(101)[:100]
    first, *others = (route(isa, logits, 9, sigmoid, bias, factors) for isa in here())

    for other in others:
        assert same(first[0], other[0])
        assert same(first[1], other[1])
