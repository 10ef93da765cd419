"""What a forward cannot be asked about rows of a tree that lie in a cache: each is refused before it computes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows

from spec_core import load
from spec_core.toolkit import DraftLimits

WRONG = {
    "held ones are all drafts": {"parents": (-1, 0, 0)},
    "one for each row of a tree": {"held": 4, "parents": (-1, 0, 0, 2, 3, 4)},
    "must come before its child": {"parents": (-1, 0, 2, 1)},
    "more rows than the batch has": {"held": -1, "parents": (-1,)},
    "that follow held ones are all": {"mutual": True},
    "a cache has too few places": {"start": 4000},
}


@cache
def executor():
    return load("zoo:pico", threads=1).executor


def batch(**changes):
    rows = {"rows": 2, "start": 3, "parents": (-1, 0, 0, 2), "held": 2, "mutual": False} | changes
    sequence = SequenceRows(executor().cache(32), 0, **rows)
    return ForwardBatch(torch.tensor([1, 2]), torch.tensor([3, 4]), [sequence])


@pytest.mark.parametrize("message", WRONG)
def test_held_rows_that_do_not_fit_are_refused(message):
    assert executor().run(batch())["logits"].isfinite().all()
    with pytest.raises(ValueError, match=message):
        executor().run(batch(**WRONG[message]))


def test_a_draft_in_one_call_follows_no_held_rows():
    """It begins after committed ones."""
    asked = batch()
    asked.logits = asked.final = [1]
    with pytest.raises(ValueError, match="follows no held rows"):
        executor().draft(asked, [DraftLimits(2, 2, 1, 0.0)])


def test_the_rows_of_the_next_forward_are_its_own():
    """Held rows of one call are forgotten by the next."""
    executor().run(batch())
    plain = ForwardBatch(torch.tensor([1, 2]), torch.tensor([0, 1]), [SequenceRows(executor().cache(32), 0, 2, 0)])
    first, second = (executor().run(plain)["logits"].clone() for _ in range(2))
    assert torch.equal(first, second)
