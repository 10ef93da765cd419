"""Some blocks of a target on GPU kernels, over its own pages, also with other weights for their rows."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from spec_core import load
from spec_core.toolkit import LowRank, Overlay, open_sequence, partial_forward
from tests.kernels.test_overlay import (
    noise,
    seq,
    test_plain_rows_are_the_targets_own,
    test_rows_are_as_alone_and_the_targets_stay,
    test_rows_see_each_other_both_ways,
)
from tests.kernels.test_part import (
    TEXT,
    feed,
    test_a_window_hides_rows_before_it,
    test_drafts_after_a_part_are_judged_as_without_it,
    test_sinks_are_rows_before_the_window,
)
from tests.support.small_models import tiny_gguf

__all__ = [
    "seq", "test_a_window_hides_rows_before_it", "test_drafts_after_a_part_are_judged_as_without_it",
    "test_plain_rows_are_the_targets_own", "test_rows_are_as_alone_and_the_targets_stay",
    "test_rows_see_each_other_both_ways", "test_sinks_are_rows_before_the_window",
]  # fmt: skip
OPTIONS = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32", "threads": 1}


@pytest.fixture
def target():
    """What tests of other kernels run here."""
    return load(tiny_gguf(0, layers=5), kernels="gpu", **OPTIONS)


PARTS = {
    "first blocks": lambda target: {"blocks": range(3)},
    "a window and sinks": lambda target: {"blocks": [1, 2], "window": 3, "sinks": 2},
    "other weights": lambda target: {"blocks": range(5), "overlay": other_weights(target)},
}


def other_weights(target):
    """Of the rows after the first: of a norm of heads, a pair for values, and another matrix for keys."""
    values, keys = (target.tensor(f"blk.{name}.weight").float() for name in ("1.attn_v", "2.attn_k"))
    tensors = {
        "blk.1.attn_q_norm.weight": target.tensor("blk.1.attn_q_norm.weight").float() * 1.5,
        "blk.1.attn_v.weight": LowRank(noise(4, values.shape[1]), noise(values.shape[0], 4), scale=0.5),
        "blk.2.attn_k.weight": keys + noise(1, 1),
    }
    return Overlay(tensors, plain_rows=1, both_ways=True)


@pytest.mark.parametrize("part", PARTS)
def test_rows_of_a_part_are_the_references(part):
    """Of two texts at once."""
    rows = []
    for kernels in ("gpu", "reference"):
        target = load(tiny_gguf(0, layers=5), kernels=kernels, **OPTIONS)
        seqs = [open_sequence(target) for _ in range(2)]
        for i, one in enumerate(seqs):
            feed(target, one, TEXT[: 6 + i])
        some = partial_forward(target, **PARTS[part](target)).forward_rows(
            [(one, one.evaluated, [7, 8, 9]) for one in seqs]
        )
        rows.append(torch.cat(some).cpu())

    assert (rows[0] - rows[1]).norm() < 3e-6 * rows[1].norm()
