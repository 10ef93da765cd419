"""Tests of spec-swift: the kit's promises, plain texts, and a search that finds better blocks."""

import pytest
from spec_swift import STEPS, Search, Swift

from spec_core import Refused, Run, load
from spec_core.testing import DrafterConformance


class TestSwift(DrafterConformance):
    def make(self):
        return Swift(draft_max=3)

    def target(self):
        return load("zoo:pico", threads=1)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, temperature):
    assert check_plain(lambda: Swift(share=0.2), temperature, max_tokens=48)["accepted"] > 0


def test_the_search_finds_the_block_that_is_not_needed():
    """Drafts are accepted only if block 5 of 8 is left out."""
    search = Search(8, frozenset({2}), frozenset({2}), trials=50)
    for _ in range(400):
        search.learn(4, 4 if 5 in search.left_out else 1)
        search.choose()

    assert search.best == search.left_out == frozenset({5})


def test_a_run_ends_its_search_after_some_failures():
    swift = Swift(share=0.2, trials=3)
    run = Run(load("zoo:pico", threads=1), [swift])
    for seed in range(3):
        run.generate("def add(a, b):\n", max_tokens=100, ignore_eos=True, seed=seed).result
    search = swift.searches[""]

    assert len(search.scores) > search.failures == swift.trials
    assert search.left_out == search.best
    assert all(score.drafts >= STEPS for score in search.scores.values())


def test_salts_do_not_share_a_search():
    swift = Swift(share=0.2)
    run = Run(load("zoo:pico", threads=1), [swift])
    for salt in ("a", "b", "a"):
        run.generate("def add(a, b):\n", max_tokens=24, ignore_eos=True, cache_salt=salt).result

    assert sorted(swift.searches) == ["a", "b"]


def test_other_targets_are_refused_by_name():
    with pytest.raises(Refused, match="runs a part of the target's blocks, pico-hybrid cannot: its recurrent"):
        Run("zoo:pico-hybrid", [Swift()])
