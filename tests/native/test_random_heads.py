"""Random draft heads on random models: see random_heads.py."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native

from tests.native.random_heads import case, wrong

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
SEEDS = range(28)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_head_drafts_as_the_reference_does_or_is_refused(seed):
    assert wrong(seed) == []


def test_the_seeds_of_the_suite_meet_what_heads_can_be():
    drawn = [case(seed) for seed in SEEDS]
    fitting = [one.head for one in drawn if one.fits]
    refused = [one.head for one in drawn if not one.fits]

    for heads in (fitting, refused):
        assert {head.kind == "eagle3" for head in heads} == {True, False}
        assert {head.width < head.target_width for head in heads if head.width != head.target_width} == {True, False}
    assert {head.kind for head in fitting} == {"eagle3", "dflash", "dspark", "dflash2", "dspine", "lilicorr"}
    assert {(h.own_embedding, h.own_output) for h in refused} == {(False, False), (False, True), (True, False)}
    assert {head.width == head.target_width for head in fitting} == {True, False}
    assert any(head.width % 16 for head in fitting)
    assert {1, 12} <= {head.inputs for head in fitting}
