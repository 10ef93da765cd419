"""Random models on the native program: see programs.py."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native

from tests.native.programs import differences, program

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
SEEDS = range(16)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_a_random_model_depend_on_nothing_but_their_path(seed):
    assert differences(seed) == []


def test_the_seeds_of_the_suite_meet_what_models_can_be():
    drawn = [program(seed) for seed in SEEDS]
    types = {made.weights.type(name) for made in drawn for name in made.weights.shapes if "norm" not in name}

    assert {made.options["cache_dtype"] for made in drawn} == set(native.CACHES)
    assert {made.config.experts is None for made in drawn} == {True, False}
    assert {made.config.delta is None for made in drawn} == {True, False}
    assert types == set(native.TYPES)
