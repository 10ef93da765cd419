"""The confidence of a token is that of the token alone: those of a path, multiplied, are the chance of the path."""

from __future__ import annotations

import math

import pytest
from spec_methods.recycling import Recycling
from spec_methods.suffix import Suffix

from spec_core import Run
from spec_core.testing import ToyTarget
from spec_core.toolkit import TreeNode, confidences

P_MIN = 0.2


def test_the_chance_of_a_path_is_divided_by_that_of_the_path_before_it():
    nodes = [TreeNode(1, -1, 1, 0.5), TreeNode(2, 0, 2, 0.25), TreeNode(3, -1, 1, 0.4), TreeNode(4, 2, 2, 0.4)]

    assert confidences(nodes) == [0.5, 0.5, 0.4, 1.0]


def test_behind_a_token_that_is_never_right_nothing_is():
    assert confidences([TreeNode(1, -1, 1, 0.0), TreeNode(2, 0, 2, 0.0)]) == [0.0, 0.0]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("method", [Suffix, Recycling])
def test_paths_are_as_likely_as_the_method_demands(method, width):
    """A method that gave the chance of the path for each token would seem to draft paths below ``p_min``."""
    drafts = []
    run = Run(ToyTarget(recurrent=False), [("method", method(width=width, p_min=P_MIN))])
    run.observe(lambda step: drafts.extend(part.draft for part in step.parts if part.draft))
    for word in (5, 7, 9):
        run.generate([word, 3, 4, 5, 6] * 6, max_tokens=60).result

    chances = [math.prod(d.confidence[i] for i in d.ancestry(leaf)) for d in drafts for leaf in range(len(d))]
    longest = max(draft.depth for draft in drafts)
    assert longest > 2 and min(chances) >= P_MIN * (1 - 1e-9)
