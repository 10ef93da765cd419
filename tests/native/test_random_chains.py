"""Random layers that predict further: see random_chains.py."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native

from tests.native.random_chains import ARCHS, OWN, case, wrong

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
SEEDS = (*range(16), 47)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_layers_draft_as_the_reference_does(seed):
    assert wrong(seed) == []


def test_the_seeds_of_the_suite_meet_what_layers_can_be():
    drawn = [case(seed) for seed in SEEDS]

    assert {one.config.nextn for one in drawn} == {1, 2, 3, 4}
    assert {one.config.arch for one in drawn} == set(ARCHS)
    assert any(sum(one.pieces) < one.config.nextn for one in drawn)
    for own in OWN:
        assert {any(name.endswith(own) for name in one.weights.shapes) for one in drawn} == {True, False}
