"""Random assistants over random caches: see random_assistants.py."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native

from tests.native.random_assistants import case, wrong

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
SEEDS = range(16)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_assistant_drafts_as_the_reference_does(seed):
    assert wrong(seed) == []


def test_the_seeds_of_the_suite_meet_what_assistants_can_be():
    drawn = [case(seed) for seed in SEEDS]

    assert {one.head.clusters > 0 for one in drawn} == {True, False}
    assert any(one.head.clusters and one.head.config.vocab // one.head.clusters % 16 for one in drawn)
    assert {len(one.reader.shapes) for one in drawn} == {2, 3, 4}
    assert any(shape.dim > 256 for one in drawn for shape in one.reader.shapes)
    assert any(one.rows < max(one.head.config.windows) for one in drawn)
    assert any(one.rows > max(one.head.config.windows) > 0 for one in drawn)
