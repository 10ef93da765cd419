"""ngram beyond the contract: verified hits, right continuations, evidence, bounded memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_methods.ngram import Index, Ngram, NgramState, best_match, continuation, cut_at_end, max_length, new_estimates

from spec_core import Run, Sampling
from spec_core.testing import ToyTarget

TOKENS = st.lists(st.integers(0, 5), min_size=4, max_size=80)


def memory_of(plugin: Ngram, tokens: list[int]) -> NgramState:
    """The memory after committing all tokens but the last."""
    memory = NgramState(Index(plugin.n_min, plugin.ways, plugin.entries_max), 0, log=tokens[:-1])
    memory.index.learn(memory.log, 0)
    return memory


def ahead(plugin: Ngram, tokens: list[int], budget: int) -> list[int]:
    memory = memory_of(plugin, tokens)
    return plugin._draft(memory, memory.index.find(tokens), tokens, budget)


@given(TOKENS)
@settings(max_examples=300, deadline=None)
def test_every_draft_follows_a_real_earlier_occurrence(tokens):
    """A hit is verified before it drafts: in the text, the draft follows the same last tokens."""
    plugin = Ngram(n_min=2)
    ids = ahead(plugin, tokens, 8)

    if ids:
        extended = tokens + ids
        starts = [i for i in range(2, len(tokens)) if tokens[i - 2 : i] == tokens[-2:]]
        assert any(extended[i : i + len(ids)] == ids for i in starts)


@given(TOKENS)
@settings(max_examples=300, deadline=None)
def test_the_longest_match_wins(tokens):
    """No verified place matches more tokens at the end of the text than the chosen one."""
    plugin = Ngram(n_min=1, ways=100)
    memory = memory_of(plugin, tokens)
    best = best_match(memory.index.find(tokens), tokens, 64)

    def agreeing(end: int) -> int:
        n = 0
        while n < end and n < len(tokens) and tokens[end - 1 - n] == tokens[-1 - n]:
            n += 1
        return n

    longest = max((agreeing(end) for end in range(1, len(tokens))), default=0)
    assert (best[0] if best else 0) == longest


def test_of_equal_matches_the_most_frequent_continuation_wins():
    """The draft follows the place with the most votes, not always the latest one."""
    tokens = [1, 2, 7, 0, 1, 2, 8, 0, 1, 2, 8, 5, 1, 2, 7, 3, 1, 2, 8, 4, 1, 2]
    plugin = Ngram(n_min=2, n_max=2)

    assert ahead(plugin, tokens, 4)[0] == 8


def test_periodic_text_is_drafted_to_full_length():
    """Beyond the end of the text the draft continues with its own tokens, so a short period fills the budget."""
    tokens = [4, 5, 6] * 8
    plugin = Ngram(n_min=2, draft_max=12)

    assert ahead(plugin, tokens, 8) == [4, 5, 6, 4, 5, 6, 4, 5]


def test_follow_stops_at_the_end_of_a_foreign_text():
    assert continuation([1, 2, 3], 2, 5, own=False) == [3]


def test_learning_token_by_token_equals_learning_at_once():
    """n-grams across the border of two updates are entered."""
    rng = random.Random(0)
    tokens = [rng.randrange(4) for _ in range(200)]
    whole, grown = Index(3, 8, 1000), Index(3, 8, 1000)
    whole.learn(tokens, 0)
    log: list[int] = []
    for i, token in enumerate(tokens):
        log.append(token)
        grown.learn(log, i)

    assert {k: [at for _, at in v] for k, v in whole.places.items()} == {
        k: [at for _, at in v] for k, v in grown.places.items()
    }


def test_memory_stays_under_its_bound():
    """A million tokens of random text leave no more entries than allowed; the oldest go first."""
    rng = random.Random(1)
    index, log = Index(3, 4, 500), []
    for _ in range(200):
        start = len(log)
        log += [rng.randrange(50) for _ in range(100)]
        index.learn(log, start)

    assert len(index.places) <= 500
    assert tuple(log[-3:]) in index.places


def test_a_bad_round_lowers_a_score_and_is_forgotten():
    """Rejections shorten drafts of such matches; look-ups without drafts restore the prior."""
    estimates = new_estimates()
    before = estimates.value(3)
    for _ in range(5):
        estimates.of(3).learn(drafted=4, accepted=0)
    low = estimates.value(3)
    for _ in range(400):
        estimates.of(3).fade()

    assert low < 0.6 * before
    assert estimates.value(3) == pytest.approx(before, rel=0.02)


def test_evidence_tests_only_up_to_the_first_rejection():
    estimates = new_estimates()
    estimates.of(3).learn(drafted=6, accepted=2)

    assert (estimates.of(3).accepted, estimates.of(3).tested) == (2, 3)


@pytest.mark.parametrize(
    ("survival", "p_min", "length"), [(0.5, 0.3, 1), (0.9, 0.3, 11), (0.2, 0.3, 0), (0.5, 0.0, 1 << 30)]
)
def test_length_comes_from_evidence(survival, p_min, length):
    assert length == max_length(survival, p_min)


def test_nothing_is_drafted_past_an_end_token_or_an_embedded_row():
    assert cut_at_end([1, 9, 3], frozenset({9})) == [1, 9]
    assert cut_at_end([1, -1, 3], frozenset()) == [1]


def test_two_sequences_side_by_side_draft_what_each_drafts_alone():
    """Memory is per sequence unless shared: another text changes no step."""
    target = ToyTarget(seed=3, recurrent=False)
    prompts = [[1, 2, 3], [9, 8, 7, 6]]

    def steps(chosen):
        run = Run(target, methods=["ngram"])
        seqs = [run.submit(p, max_tokens=60) for p in chosen]
        for _ in run:
            pass
        return [run.take(s).stats["steps"] for s in seqs]

    assert [steps([p])[0] for p in prompts] == steps(prompts)


def test_shared_memory_drafts_from_another_sequences_text():
    """With sharing, texts of the run are searched: the same request takes fewer steps the second time."""
    target = ToyTarget(seed=5, recurrent=False)
    run = Run(target, methods=[("ngram", {"shared": True})], reuse=False)
    sampling = Sampling(temperature=1.0)
    first, second = (run.generate([1, 2, 3], max_tokens=80, sampling=sampling, seed=4).result for _ in range(2))

    assert first.tokens == second.tokens
    assert second.stats["steps"] < 0.6 * first.stats["steps"]


def test_a_reused_slot_forgets_what_the_new_text_does_not_have():
    """After a request with another text the log holds the new text only."""
    target = ToyTarget(seed=3, recurrent=False)
    plugin = Ngram()
    run = Run(target, methods=[("ngram", plugin)], max_sequences=1)
    run.generate([1, 2, 3, 4, 5], max_tokens=30).result
    seq = run.submit([1, 2, 3, 9, 9], max_tokens=10)
    for _ in run:
        pass

    log = seq.stash[plugin.memory].log
    assert len(log) > 5 and log == seq.tokens[: len(log)]


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="n_max"):
        Ngram(n_min=5, n_max=3)
