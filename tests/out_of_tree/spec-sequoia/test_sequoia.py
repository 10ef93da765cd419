"""Tests of spec-sequoia: the kit's promises, plain texts, and that a token of a tree is evaluated once."""

from functools import cache

import pytest
from spec_sequoia import Sequoia, shape_of

from spec_core import Refused, Run, load
from spec_core.testing import DrafterConformance

load_target = cache(lambda: load("zoo:pico", threads=1))


class TestSequoia(DrafterConformance):
    def make(self):
        return Sequoia("zoo:pico-draft")

    def target(self):
        return load_target()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, temperature):
    assert check_plain(lambda: Sequoia("zoo:pico-draft"), temperature)["accepted"] > 0


def test_a_tree_of_twelve_nodes_evaluates_at_most_thirteen_rows(texts):
    """In every step after the prompt's first one: the tokens that are new in the text, and every inner node once."""
    counts = []

    def count(step):
        trees = [part.draft for part in step.parts if part.draft is not None and part.seq.verdict_count > 2]
        if trees and len(trees[0]) == 12:
            counts.append((step.rows["sequoia"], step.forwards["sequoia"], trees[0].depth))

    texts([Sequoia("zoo:pico-draft")], 0.0, at_once=1, on_step=count)

    assert counts
    assert max(rows for rows, _, _ in counts) <= 13
    assert all(forwards <= depth for _, forwards, depth in counts)


def test_the_shape_is_the_most_likely_tree():
    """Of twelve nodes with these chances: a deep first branch, and siblings near the root."""
    shape = shape_of((0.6, 0.2), 4, 5)

    assert [(node.depth, node.token, node.parent) for node in shape] == [
        (1, 0, -1),
        (1, 1, -1),
        (2, 0, 0),
        (3, 0, 2),
        (4, 0, 3),
    ]


def test_a_draft_model_that_keeps_no_rows_is_refused():
    with pytest.raises(Refused, match="pico-hybrid cannot draft trees: its recurrent blocks keep a state"):
        Run("zoo:pico", [Sequoia("zoo:pico-hybrid")])
