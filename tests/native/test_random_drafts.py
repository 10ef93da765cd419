"""Random draft heads, assistants and layers that predict further: see random_heads.py, random_assistants.py and
random_chains.py."""

from __future__ import annotations

import pytest
import torch
from spec_kernels import native

from tests.native import random_assistants, random_chains, random_heads

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"{native.problem()}")
SEEDS = {random_heads: range(28), random_assistants: range(16), random_chains: (*range(16), 47)}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "kind, seed",
    [pytest.param(kind, n, id=f"{kind.__name__.rpartition('_')[2]}-{n}") for kind in SEEDS for n in SEEDS[kind]],
)
def test_a_random_drafter_drafts_as_the_reference_does_or_is_refused(kind, seed):
    assert kind.wrong(seed) == []


def test_the_seeds_of_the_suite_meet_what_heads_can_be():
    drawn = [random_heads.case(seed) for seed in SEEDS[random_heads]]
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


def test_the_seeds_of_the_suite_meet_what_assistants_can_be():
    drawn = [random_assistants.case(seed) for seed in SEEDS[random_assistants]]

    assert {one.head.clusters > 0 for one in drawn} == {True, False}
    assert any(one.head.clusters and one.head.config.vocab // one.head.clusters % 16 for one in drawn)
    assert {len(one.reader.shapes) for one in drawn} == {2, 3, 4}
    assert any(shape.dim > 256 for one in drawn for shape in one.reader.shapes)
    assert any(one.rows < max(one.head.config.windows) for one in drawn)
    assert any(one.rows > max(one.head.config.windows) > 0 for one in drawn)


def test_the_seeds_of_the_suite_meet_what_layers_can_be():
    drawn = [random_chains.case(seed) for seed in SEEDS[random_chains]]

    assert {one.config.nextn for one in drawn} == {1, 2, 3, 4}
    assert {one.config.arch for one in drawn} == set(random_chains.ARCHS)
    assert any(sum(one.pieces) < one.config.nextn for one in drawn)
    for own in random_chains.OWN:
        assert {any(name.endswith(own) for name in one.weights.shapes) for one in drawn} == {True, False}
