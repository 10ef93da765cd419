"""Heads whose sizes are not those of their target, or larger than native kernels run, are refused by name."""

from __future__ import annotations

import attrs
import pytest
from spec_kernels.native import problem

from spec_core import load
from tests.support.small_heads import directory, target_with, tiny_target


def head_of(path):
    return load(path, weights=False).head


@pytest.mark.parametrize("width", [16, 32, 48], ids=["narrower", "equal", "wider"])
@pytest.mark.parametrize("own_output", [True, False])
@pytest.mark.parametrize("own_embedding", [True, False])
def test_a_head_of_another_width_that_borrows_a_matrix_is_a_misfit(own_embedding, own_output, width, tmp_path):
    """The target's matrices have the target's width, which is 32."""
    own = {"own_embedding": own_embedding, "own_output": own_output}
    head = attrs.evolve(head_of(directory(tmp_path, "eagle3", "safeailab")), width=width, target_width=32, **own)
    misfit = head.misfit(tiny_target(weights=False))

    if width == 32 or (own_embedding and own_output):
        assert misfit is None
        return
    reason, hint = misfit
    assert f"has width {width} and no {'output matrix' if own_embedding else 'embedding'}" in reason
    assert "have width 32" in reason and hint == "get a file that holds them"


def test_a_head_of_more_inputs_than_native_kernels_run_is_a_misfit(tmp_path):
    head = head_of(directory(tmp_path, "eagle3", "safeailab"))
    native, reference = (target_with(layer_max=n) for n in ({"inputs": 32}, {}))
    largest, larger = (attrs.evolve(head, inputs=n, ids=(1,) * n) for n in (32, 33))

    assert "reads 33 hidden states of each position, native kernels run at most 32" in larger.misfit(native)[0]
    assert larger.misfit(reference) is None
    assert largest.misfit(native) is None


def test_a_natively_run_target_says_how_large_its_heads_may_be():
    if problem() is not None:
        pytest.skip(problem())
    native, reference = (tiny_target(kernels=kernels).info.layer_max for kernels in ("native", "reference"))

    assert native == {"head": 576, "inputs": 32}
    assert reference == {}
