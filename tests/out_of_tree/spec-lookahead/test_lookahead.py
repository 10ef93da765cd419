"""Tests of spec-lookahead: the kit's promises, plain texts, and that only n-grams are counted as drafts."""

from functools import cache

import pytest
from spec_lookahead import Lookahead, merge_grams

from spec_core import Run, Sampling, load
from spec_core.testing import DrafterConformance

PROMPTS = ["def add(a, b):\n", "x = [1, 1, 1, 1, "]
load_target = cache(lambda location="zoo:pico": load(location, threads=1))


class TestLookahead(DrafterConformance):
    def make(self):
        return Lookahead(width=3, levels=2)


def texts(methods, temperature, at_once=8, on_step=None, location="zoo:pico"):
    run = Run(load_target(location), methods, max_sequences=at_once)
    if on_step is not None:
        run.observe(on_step)
    sampling = Sampling(temperature=temperature)
    seqs = [run.submit(PROMPTS[i % 2], max_tokens=32, sampling=sampling, seed=i) for i in range(8)]
    while run.busy:
        run.step()
    results = [run.take(seq) for seq in seqs]
    return [one.tokens for one in results], results


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_plain_alone_and_in_a_batch(temperature):
    plain, _ = texts([], temperature)
    for at_once in (1, 8):
        drafted, results = texts([Lookahead()], temperature, at_once)
        assert drafted == plain
    assert sum(one.stats["accepted"] for one in results) > 0


def test_texts_of_a_hybrid_are_plain():
    """Its recurrent state goes on after the kept draft, not after a guess."""
    texts_of_both = [texts(methods, 0.8, location="zoo:pico-hybrid")[0] for methods in ([], [Lookahead(width=3)])]
    assert texts_of_both[0] == texts_of_both[1]


def test_guesses_are_no_drafts():
    """Statistics count n-grams alone, and rows of the window are rows of the target's forward."""
    proposed, rows = [], []

    def count(step):
        for part in step.parts:
            proposed.append(part.drafted)
            if part.probed:
                rows.append((step.rows["target"], len(part.pending) + part.drafted + part.probed))

    _, results = texts([Lookahead()], 0.0, at_once=1, on_step=count)

    assert sum(one.stats["drafted"] for one in results) == sum(proposed)
    assert rows and all(all_rows == own for all_rows, own in rows)
    assert {own for _, own in rows} and max(proposed) <= 9


def test_equal_beginnings_of_grams_are_drafted_once():
    draft = merge_grams([(1, 2), (1, 3), (4, 5)], 2, 9)

    assert (draft.ids, draft.parents) == ((1, 2, 3, 4, 5), (-1, 0, 0, -1, 3))
    assert merge_grams([(1, 2), (1, 3)], 1, 9).parents is None
    assert len(merge_grams([(1, 2), (3, 4)], 2, 3)) == 3
