"""Random models of every family, of unfriendly sizes. For long: tests/campaigns/families.py"""

from __future__ import annotations

import pytest
import torch

from tests.targets.random_families import FAMILIES, FLOORS, differences, lacking


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.release)])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_models_are_those_of_transformers(family, seed, tmp_path):
    if lacking(family):
        pytest.skip(f"this transformers has no classes of {family}")
    torch.set_num_threads(1)
    errors = differences(family, seed, tmp_path)

    assert max(errors.values()) <= FLOORS, errors
