"""Random models of every family, of unfriendly sizes. For long: tests/campaigns/families.py"""

from __future__ import annotations

import pytest
import torch

from tests.targets.random_families import FAMILIES, FLOORS, differences, lacking

SEEDS = range(2)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_models_are_those_of_transformers(family, tmp_path):
    if lacking(family):
        pytest.skip(f"this transformers has no classes of {family}")
    torch.set_num_threads(1)
    found = {seed: differences(family, seed, tmp_path / str(seed)) for seed in SEEDS}

    assert max(max(of.values()) for of in found.values()) <= FLOORS, found
