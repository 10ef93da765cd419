"""suffix beyond the contract: exact counts, the longest match, bounded memory, length from evidence."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_methods.suffix import Suffix, learn_path
from spec_methods.suffix.automaton import NOTHING, ROOT, Automaton, End
from spec_methods.suffix.continuations import DECAY, grow_suffix_tree, new_estimates
from spec_methods.suffix.store import Store, Track

from spec_core import Run, Sampling
from spec_core.testing import DrafterConformance, ToyTarget
from spec_core.toolkit import AcceptanceEstimates, TreeLimits

DEPTH = 5
TOKENS = st.lists(st.integers(0, 3), max_size=60)
WRITES = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2)), max_size=80)
"""Random choices of one of three texts and its next token."""


class TestSuffix(DrafterConformance):
    def make(self):
        return Suffix()


class TestExtendingSuffixTrees(DrafterConformance):
    """It drafts as without ``extend`` where no other method drafts before it."""

    def make(self):
        return Suffix(width=3, p_min=0.01, extend=True)


class TestSuffixShared(DrafterConformance):
    def make(self):
        return Suffix(shared=True, tokens_max=64)


# the automaton and its naive twin


def build_automaton(tokens: list[int], depth: int = DEPTH) -> Automaton:
    automaton, end = Automaton(depth), End()
    for token in tokens:
        automaton.push(end, token)
    return automaton


def state_of(automaton: Automaton, substring: list[int]) -> int:
    state = ROOT
    for token in substring:
        state = automaton.after(state, token)
        if state == ROOT:
            return ROOT
    return state


def occurrences(texts: list[list[int]], substring: tuple[int, ...]) -> int:
    n = len(substring)
    return sum(tuple(text[i : i + n]) == substring for text in texts for i in range(len(text) - n + 1))


def substrings(texts: list[list[int]], n_max: int) -> set[tuple[int, ...]]:
    return {tuple(text[i : i + n]) for text in texts for n in range(1, n_max + 1) for i in range(len(text) - n + 1)}


@given(WRITES)
@settings(max_examples=80, deadline=None)
def test_counts_are_those_of_a_naive_twin(writes):
    """Three texts grow side by side, and end where a row was given as an embedding; every substring of at most
    depth + 1 tokens is counted exactly."""
    store = Store(1000, DEPTH)
    tracks, texts = [Track(store) for _ in range(3)], [[[]] for _ in range(3)]
    for who, token in writes:
        tracks[who].write([token])
        texts[who] += [[]] if token < 0 else []
        texts[who][-1] += [token] if token >= 0 else []

    pieces = [piece for text in texts for piece in text]
    automaton = store.generations[0]
    for substring in substrings(pieces, DEPTH + 1):
        assert automaton.count[state_of(automaton, list(substring))] == occurrences(pieces, substring)


@given(TOKENS)
@settings(max_examples=80, deadline=None)
def test_the_match_is_the_longest_suffix_that_occurred_before(tokens):
    """Of at most ``depth`` tokens, by brute force; and it is the same whether learnt at once or token by token."""
    track, whole = Track(Store(1000, DEPTH)), Track(Store(1000, DEPTH))
    for token in tokens:
        track.write([token])
    whole.write(tokens)

    expected = max((n for n in range(min(DEPTH, len(tokens)) + 1) if n == 0 or earlier(tokens, tokens[-n:])), default=0)
    assert [expected] == [n for _, n in track.matches.values()] or not tokens
    assert [*track.matches.values()] == [*whole.matches.values()]


@given(WRITES)
@settings(max_examples=60, deadline=None)
def test_a_match_is_in_the_state_of_its_own_length(writes):
    """Also after another text has split states; a token is counted in at most depth + 1 of them."""
    store = Store(1000, DEPTH)
    tracks = [Track(store) for _ in range(3)]
    for who, token in writes:
        tracks[who].write([token])
        automaton, end = store.generations[0], tracks[who].end
        for state, n in [end.recent, *(automaton.open(match) for track in tracks for match in track.matches.values())]:
            assert state == ROOT or automaton.length[automaton.link[state]] < n <= automaton.length[state]
        assert end.recent[1] <= DEPTH + 1


def earlier(tokens: list[int], suffix: list[int]) -> bool:
    n = len(suffix)
    return any(tokens[i : i + n] == suffix for i in range(len(tokens) - n))


@given(TOKENS)
@settings(max_examples=60, deadline=None)
def test_states_and_transitions_are_linear_in_the_text(tokens):
    """At most two states and three transitions per token."""
    automaton = build_automaton(tokens)

    assert len(automaton.next) <= 2 * len(tokens) + 1
    several = sum(len(edges) for edges in automaton.next if edges is not None)
    single = sum(state > ROOT for edges, state in zip(automaton.next, automaton.into, strict=True) if edges is None)
    assert several + single <= 3 * len(tokens)


@given(st.lists(st.integers(0, 2), max_size=120))
@settings(max_examples=60, deadline=None)
def test_the_store_knows_the_latest_tokens_and_no_more_than_allowed(tokens):
    """Its reference keeps the last whole half and the current half as lists."""
    store, twin = Store(20, DEPTH), [[]]
    track = Track(store)
    for token in tokens:
        track.write([token])
        twin = [[], twin[0]] if len(twin[0]) == 10 else twin
        twin[0].append(token)

    assert [a.size for a in store.generations] == [len(half) for half in twin]
    for automaton, half in zip(store.generations, twin, strict=True):
        for substring in substrings([half], DEPTH):
            assert automaton.count[state_of(automaton, list(substring))] == occurrences([half], substring)


def test_memory_stays_under_its_bound():
    """For texts of any length, tokens and states stay within the limits; the newest tokens are kept."""
    rng, track = random.Random(0), Track(Store(600, 8))
    for _ in range(40):
        track.write([rng.randrange(30) for _ in range(250)])

        assert sum(a.size for a in track.store.generations) <= 600
        assert sum(len(a.next) for a in track.store.generations) <= 2 * 600 + 2
    assert len(track.matches) == len(track.store.generations) == 2


# drafting


def draft_after(tokens: list[int], estimates: AcceptanceEstimates | None = None, **limits) -> list:
    """Draft after a text that was learnt but for its last token."""
    track = Track(Store(1000, 32))
    track.write(tokens[:-1])
    asked = TreeLimits(**{"depth": 8, "nodes": 8, "width": 1, "p_min": 0.1} | limits)
    [(automaton, match)] = track.ahead([tokens[-1]])
    return grow_suffix_tree(automaton, match, estimates or new_estimates(), asked)


def ids(nodes: list) -> list[int]:
    return [node.token for node in nodes]


@given(TOKENS.filter(lambda tokens: len(tokens) > 1))
@settings(max_examples=80, deadline=None)
def test_every_drafted_token_followed_the_same_tokens_before(tokens):
    """Checks that n tokens before the draft, with the draft so far, continue in this way earlier in the text."""
    chain = draft_after(tokens, p_min=0.0)

    assert bool(chain) == (tokens[-1] in tokens[:-2])
    for i, node in enumerate(chain):
        context = [*tokens, *ids(chain[:i])][-node.match :]
        assert earlier([*tokens[:-1], -1], [*context, node.token])


def test_the_most_frequent_continuation_is_drafted_and_then_the_most_recent():
    """8 occurred three times, 7 twice; between equal counts the later one."""
    assert ids(draft_after([1, 2, 7, 0, 1, 2, 8, 3, 1, 2, 8, 5, 1, 2, 7, 4, 1, 2, 8, 6, 1, 2]))[0] == 8
    assert ids(draft_after([1, 2, 7, 0, 1, 2, 8, 3, 1, 2]))[0] == 8


def test_the_longest_match_decides_against_a_frequent_shorter_one():
    """After 5 1 2 came 9 once, after 1 2 came 7 three times."""
    assert ids(draft_after([1, 2, 7, 1, 2, 7, 1, 2, 7, 5, 1, 2, 9, 0, 5, 1, 2]))[0] == 9


def test_periodic_text_is_drafted_to_full_length():
    """If a match ends at the end of the text, a shorter one is used."""
    assert ids(draft_after([4, 5, 6] * 8)) == [4, 5, 6, 4, 5, 6, 4, 5]


def test_nothing_is_drafted_behind_a_stop_token():
    assert ids(draft_after([1, 2, 3, 4, 5, 1, 2], stops=frozenset({4}))) == [3, 4]


def test_a_row_given_as_an_embedding_separates_two_texts():
    """Tokens before and after an embedding are not adjacent, and the embedding is never drafted."""
    assert ids(draft_after([1, 2, 3, -1, 7, 8, 1, 2])) == [3]


def test_a_token_that_never_occurred_drafts_nothing():
    assert draft_after([1, 2, 3, 1, 2, 9]) == []


def test_the_draft_ends_where_its_chance_falls_below_the_bound():
    """The chance of a path is the product of share and estimate of its tokens."""
    estimates, tokens = new_estimates(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    whole = draft_after(tokens, estimates, p_min=0.0)
    bound = draft_after(tokens, estimates, p_min=0.3)

    expected = 1.0
    for node in whole:
        expected *= node.share * estimates.value(node.match)
        assert node.chance == pytest.approx(expected)
    assert ids(bound) == ids(whole)[: sum(node.chance >= 0.3 for node in whole)] != ids(whole)


# trees


@given(TOKENS.filter(lambda tokens: len(tokens) > 1), st.integers(1, 4), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_a_tree_holds_the_likeliest_paths(tokens, width, nodes):
    """A part of the unlimited tree, without omitting a likelier node; no equal siblings."""
    every = draft_after(tokens, width=width, nodes=1000, depth=4, p_min=0.02)
    tree = draft_after(tokens, width=width, nodes=nodes, depth=4, p_min=0.02)

    chances = [node.chance for node in every]
    assert chances == sorted(chances, reverse=True)
    assert [node.chance for node in tree] == chances[:nodes]
    assert all(node.parent < i for i, node in enumerate(every))
    places = [(node.parent, node.token) for node in every]
    assert len(places) == len(set(places))
    assert all(sum(p == parent for p, _ in places) <= width for parent, _ in places)


def test_siblings_come_from_shorter_matches_too():
    """After 5 1 2 came 9, after 1 2 also 7: the remaining probability of the long match goes to the shorter one."""
    tree = draft_after([1, 2, 7, 3, 1, 2, 7, 5, 1, 2, 9, 0, 5, 1, 2], width=2, depth=1, p_min=0.01)
    long, short = new_estimates().value(3), new_estimates().value(2)

    assert [(node.token, node.match) for node in tree] == [(9, 3), (7, 2)]
    assert [node.chance for node in tree] == pytest.approx([long, (1 - long) * 2 / 3 * short])


@pytest.mark.parametrize(("trees", "width", "branches"), [(True, 3, True), (True, 1, False), (False, 3, False)])
def test_trees_are_drafted_where_asked_for_and_possible(trees, width, branches):
    """Chains by default, and on targets that take no trees."""
    run = Run(ToyTarget(seed=3, recurrent=False, trees=trees), methods=[("suffix", {"width": width, "p_min": 0.01})])
    drafts = []
    run.observe(lambda step: drafts.extend(p.draft for p in step.parts if p.draft))
    run.generate([1, 2, 3, 1, 2, 4] * 4, max_tokens=60, sampling=Sampling(temperature=0.8), seed=1).result

    assert drafts and branches == any(draft.parents is not None for draft in drafts)


# evidence


def counts(estimates: AcceptanceEstimates, match: int) -> list[float]:
    return [estimates.of(match).accepted, estimates.of(match).tested]


def test_a_bad_round_lowers_a_score_and_is_forgotten():
    """Later acceptances outweigh earlier rejections of a match length."""
    estimates = new_estimates()
    before = estimates.value(5)
    for _ in range(10):
        estimates.learn(5, False, 1.0)
    low = estimates.value(5)
    for _ in range(100):
        estimates.learn(5, True, 1.0)

    assert low < 0.4 * before < before < estimates.value(5)


def test_evidence_is_what_was_right_of_what_was_promised():
    """Older outcomes count less; lengths from 4 to 7 are one class."""
    estimates = new_estimates()
    for match, share, right in [(4, 1.0, True), (7, 0.5, False), (6, 0.5, True), (3, 1.0, False)]:
        estimates.learn(match, right, share)

    assert counts(estimates, 4) == pytest.approx([DECAY**2 + 1, DECAY**2 + 0.5 * DECAY + 0.5])
    assert counts(estimates, 3) == [0, 1]


def test_only_tested_tokens_are_learnt_from():
    """Accepted drafts and their siblings; nothing after a rejected one."""
    tree = draft_after([1, 2, 7, 3, 1, 2, 7, 4, 1, 2, 8, 6, 1, 2], width=2, depth=3, p_min=0.0, nodes=20)
    kept = next(i for i, node in enumerate(tree) if node.token == 8)
    estimates = new_estimates()
    learn_path(estimates, tree, (kept,))

    tested = [node for node in tree if node.parent in (-1, kept)]
    promised = sum(counts.tested for counts in estimates.counts.values())
    assert promised == pytest.approx(sum(node.share for node in tested), rel=0.1)
    assert 0 < sum(counts.accepted for counts in estimates.counts.values()) <= 1


# in a run


def steps(shared: bool, prompts: list[list[int]], seeds: list[int]) -> list[int]:
    run = Run(ToyTarget(seed=5, recurrent=False), methods=[("suffix", {"shared": shared})], reuse=False)
    ask = {"max_tokens": 80, "sampling": Sampling(temperature=1.0)}
    return [run.generate(p, seed=s, **ask).result.stats["steps"] for p, s in zip(prompts, seeds, strict=True)]


def test_shared_outputs_help_a_later_request_and_only_on_request():
    """The same request again: with sharing in far fewer steps, without it in the same number."""
    same = ([[1, 2, 3]] * 2, [4, 4])
    first, second = steps(True, *same)
    alone = steps(False, *same)

    assert second < 0.6 * first
    assert alone[0] == alone[1]


def test_prompts_are_not_shared():
    """Other sequences search generated text only, not prompts."""
    plugin = Suffix(shared=True)
    run = Run(ToyTarget(seed=5, recurrent=False), methods=[("suffix", plugin)])
    prompt = [40, 41, 42, 43, 44, 45]
    result = run.generate(prompt, max_tokens=20).result

    automaton = plugin.common.generations[0]
    assert automaton.size == 19  # the last token is never evaluated
    assert state_of(automaton, result.tokens[:6]) != ROOT
    assert state_of(automaton, prompt[:2]) == ROOT


def test_a_reused_slot_forgets_what_the_new_text_does_not_have():
    """Matches and counts are those of the new text alone."""
    plugin = Suffix()
    run = Run(ToyTarget(seed=3, recurrent=False), methods=[("suffix", plugin)], max_sequences=1)
    run.generate([1, 2, 3, 4, 5], max_tokens=30).result
    seq = run.submit([1, 2, 3, 9, 9], max_tokens=10)
    for _ in run:
        pass

    fresh = Track(Store(plugin.tokens_max, plugin.match_max))
    fresh.write(seq.tokens[: seq.stash[plugin.memory].written])
    own = seq.stash[plugin.memory].own
    assert seq.reused and fresh.store.generations[0].size > 5 and [*own.matches.values()] == [*fresh.matches.values()]
    assert own.store.generations[0].count == fresh.store.generations[0].count


def test_an_empty_automaton_matches_nothing():
    assert Automaton(3).follow(NOTHING, 1, 3) == NOTHING
