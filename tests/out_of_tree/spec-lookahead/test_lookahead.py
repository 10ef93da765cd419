"""Tests of spec-lookahead: the kit's promises, plain texts, and that only n-grams are counted as drafts."""

from functools import cache

import pytest
from spec_lookahead import Lookahead, merge_grams

from spec_core import load
from spec_core.testing import DrafterConformance

load_target = cache(lambda location="zoo:pico": load(location, threads=1))


class TestLookahead(DrafterConformance):
    def make(self):
        return Lookahead(width=3, levels=2)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, temperature):
    assert check_plain(Lookahead, temperature, max_tokens=32)["accepted"] > 0


def test_texts_of_a_hybrid_are_plain(texts):
    """Its recurrent state goes on after the kept draft, not after a guess."""
    texts_of_both = [
        texts(methods, 0.8, max_tokens=32, location="zoo:pico-hybrid")[0] for methods in ([], [Lookahead(width=3)])
    ]
    assert texts_of_both[0] == texts_of_both[1]


def test_guesses_are_no_drafts(texts):
    """Statistics count n-grams alone, and rows of the window are rows of the target's forward."""
    proposed, rows = [], []

    def count(step):
        for part in step.parts:
            proposed.append(part.drafted)
            if part.probed:
                rows.append((step.rows["target"], len(part.pending) + part.drafted + part.probed))

    _, counts = texts([Lookahead()], 0.0, at_once=1, max_tokens=32, on_step=count)

    assert counts["drafted"] == sum(proposed)
    assert rows and all(all_rows == own for all_rows, own in rows)
    assert {own for _, own in rows} and max(proposed) <= 9


def test_equal_beginnings_of_grams_are_drafted_once():
    draft = merge_grams([(1, 2), (1, 3), (4, 5)], 2, 9)

    assert (draft.ids, draft.parents) == ((1, 2, 3, 4, 5), (-1, 0, 0, -1, 3))
    assert merge_grams([(1, 2), (1, 3)], 1, 9).parents is None
    assert len(merge_grams([(1, 2), (3, 4)], 2, 3)) == 3
