"""recycling beyond the contract: what it learns, the likeliest tree, trees with a real target."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_methods.recycling import Recycling, drawn_from
from spec_methods.recycling.successors import Table
from spec_methods.recycling.tree import (
    DECAY,
    Evidence,
    Limits,
    Node,
    by_chance,
    by_noise,
    grow_recycled_tree,
    kinds,
    learn_path,
)

from spec_core import Draft, DraftStep, Run, Sampling, hookimpl, load
from spec_core.sampling.noise import gumbel
from spec_core.testing import DrafterConformance, ToyTarget
from spec_core.toolkit import most_likely
from tests.methods.extending import SAMPLINGS, Begins, ran, requests, texts_of


class TestExtendingRecycling(DrafterConformance):
    """It drafts as without ``extend`` where no other method drafts before it."""

    def make(self):
        return Recycling(extend=True)


class TestRecyclingSharedGreedyChains(DrafterConformance):
    def make(self):
        return Recycling(shared=True, width=1, sample="greedy", fresh=1.0)


# the matrix


def test_a_row_is_blended_with_what_is_known():
    """Half and half by default; the k most likely are kept."""
    table = Table(k=3, fresh=0.5)
    table.learn(7, [(1, 0.6), (2, 0.3), (3, 0.1)])
    table.learn(7, [(2, 0.8), (4, 0.2)])

    assert dict(table.rows[7]) == pytest.approx({2: 0.475, 1: 0.15, 4: 0.1})
    assert [token for token, _ in table.rows[7]] == [2, 1, 4]


def test_with_a_weight_of_one_the_last_row_stands_as_in_the_paper():
    table = Table(k=2, fresh=1.0)
    table.learn(7, [(1, 0.6), (2, 0.3)])
    table.learn(7, [(5, 0.5), (6, 0.4)])

    assert table.rows == {7: [(5, 0.5), (6, 0.4)]}


def test_a_prompt_is_read_and_embedded_rows_are_no_tokens():
    """A token's successor in the text counts like a row with probability 1 for it."""
    table = Table(k=2, fresh=0.5)
    table.read([1, 2, -1, 3, 1, 4])

    assert table.rows == {1: [(4, 0.5), (2, 0.25)], 3: [(1, 0.5)]}


def test_the_likeliest_tokens_of_rows_and_their_probabilities():
    """Probabilities are of the whole vocabulary, not of the kept tokens only."""
    rows = most_likely(torch.tensor([[0.0, 2.0, 1.0, -1.0], [3.0, 0.0, 0.0, 4.0]]), 2)

    total = [sum(map(math.exp, row)) for row in ([0, 2, 1, -1], [3, 0, 0, 4])]
    assert [[token for token, _ in row] for row in rows] == [[1, 2], [3, 0]]
    chances = [math.exp(2) / total[0], math.exp(1) / total[0], math.exp(4) / total[1], math.exp(3) / total[1]]
    assert [chance for row in rows for _, chance in row] == pytest.approx(chances, rel=1e-6)


def watch(plugin: Recycling, n: int = 12, target: ToyTarget | None = None, **ask) -> tuple[Run, list]:
    """(run, steps as (tokens whose rows were verified, kept rows, logits)) of one request."""
    seen = []

    def look(step):
        for part in step.parts:
            if part.verdict is not None:
                drafted = part.draft.ids if part.draft else ()
                last = part.seq.tokens[len(part.seq.tokens) - len(part.emitted) - 1]
                kept = [0, *(1 + i for i in part.full_verdict.path)]
                seen.append(([last, *drafted], kept, step.logits(part.seq).clone(), part))

    run = Run(target or ToyTarget(seed=2, recurrent=False), methods=[("recycling", plugin)])
    run.observe(look)
    run.generate([1, 2, 3, 1, 2, 5], max_tokens=n, name="a", **ask).result
    return run, seen


@pytest.mark.parametrize("shared", [False, True])
def test_every_verified_row_is_learnt_the_kept_ones_last(shared):
    """Also from rejected rows: the matrix equals that of a reference that reads the steps one by one."""
    plugin, twin = Recycling(shared=shared, p_min=0.02), Table(8, 0.5)
    run, seen = watch(plugin, n=40)
    twin.read([1, 2, 3, 1, 2, 5])
    for tokens, kept, logits, _ in seen:
        rows = most_likely(logits, 8)
        for i in [*(i for i in range(len(tokens)) if i not in kept), *kept]:
            twin.learn(tokens[i], rows[i])

    [slot] = run.free_slots
    assert slot.stash[plugin.memory].table.rows == twin.rows
    assert (plugin.common is slot.stash[plugin.memory].table) == shared
    assert any(len(kept) < len(tokens) for tokens, kept, _, _ in seen), "the example needs rejected drafts"


class Guess:
    """Drafts two tokens that are always rejected."""

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            step.propose(seq, Draft([33, 34][:budget]))


def test_rows_of_other_methods_drafts_are_learnt():
    """Every verified row is learned from, whichever method drafted it."""

    plugin = Recycling()
    run = Run(ToyTarget(seed=2, recurrent=False), methods=[("guess", Guess()), ("recycling", plugin)])
    run.generate([1, 2, 3], max_tokens=5).result

    assert {33, 34} <= run.free_slots[0].stash[plugin.memory].table.rows.keys()


def test_a_new_request_on_the_same_slot_begins_with_its_prompt():
    """Unless the matrix is shared, nothing of another request is kept, even if its rows are reused."""
    plugin = Recycling()
    run = Run(ToyTarget(seed=2, recurrent=False), methods=[("recycling", plugin)], max_sequences=1)
    run.generate([1, 2, 3, 4, 5], max_tokens=30).result
    seq = run.submit([1, 2, 3, 4, 9], max_tokens=2)
    run.step()

    assert seq.reused
    assert seq.stash[plugin.memory].table.rows.keys() == {1, 2, 3, 4, 9}


# the tree

ROWS = st.dictionaries(
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 5), st.floats(0.01, 1.0), min_size=1, max_size=4).map(
        lambda row: sorted(row.items(), key=lambda pair: -pair[1])
    ),
)


def every_path(table: Table, limits: Limits) -> list[float]:
    """Chances of all paths within depth, width and p_min, by enumeration."""
    evidence, chances, waiting = Evidence(), [], [(0, 1.0, 0)]
    while waiting:
        token, chance, depth = waiting.pop()
        scored = by_chance(table.rows.get(token, []), depth + 1)
        ranked = kinds(scored, limits.width) if scored else []
        for (_, successor), kind in zip(scored, ranked, strict=False):
            after = chance * evidence.value(kind)
            if after >= limits.p_min and depth < limits.depth:
                chances.append(after)
                waiting.append((successor, after, depth + 1))
    return sorted(chances, reverse=True)


@given(ROWS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 10))
@settings(max_examples=80, deadline=None)
def test_the_tree_holds_the_likeliest_paths(rows, depth, width, nodes):
    """Compared with all paths; parents come first, and siblings have different tokens."""
    table, limits = Table(8, 0.5, rows), Limits(depth, nodes, width, 0.05)
    tree = grow_recycled_tree(table, 0, by_chance, Evidence(), limits)

    assert [node.chance for node in tree] == pytest.approx(every_path(table, limits)[:nodes])
    assert all(node.parent < i for i, node in enumerate(tree))
    places = [(node.parent, node.token) for node in tree]
    assert len(places) == len(set(places))


TABLE = Table(8, 0.5, {1: [(2, 0.9), (3, 0.1)], 2: [(4, 1.0)], 4: [(1, 1.0)]})


def test_nothing_is_drafted_behind_a_stop_token():
    chain = grow_recycled_tree(TABLE, 1, by_chance, Evidence(), Limits(8, 8, 1, 0.0, stops=frozenset({4})))

    assert [node.token for node in chain] == [2, 4]


def test_a_sampling_target_is_followed_by_its_noise():
    """The successor with the best sum of log-probability, over the temperature, and noise at its own depth."""
    noise = {0: torch.tensor([0.0, 0, 0.5, 4.0]), 1: torch.tensor([0.0, 0, 4.0, 0.5])}
    row = [(2, 0.9), (3, 0.1)]
    for temperature in (0.5, 1.0, 2.0):
        order = by_noise(lambda i, ids: noise[i][ids], temperature)
        second = math.log(0.1) / temperature + 4.0, 3
        first = math.log(0.9) / temperature + 0.5, 2
        assert order(row, 1) == sorted([first, second], reverse=True)
        assert order(row, 2)[0][1] == 2


def test_a_drawn_token_stays_whatever_its_chance():
    """Omitting it because of its noise would change the distribution of the others; the draft ends after it."""
    limits = {"depth": 8, "nodes": 8, "width": 1, "p_min": 0.9}
    kept = grow_recycled_tree(TABLE, 1, by_chance, Evidence(), Limits(**limits, drawn=True))

    assert grow_recycled_tree(TABLE, 1, by_chance, Evidence(), Limits(**limits)) == []
    assert [node.token for node in kept] == [2] and kept[0].chance < 0.9


def test_rows_are_the_distribution_that_noise_draws_from():
    """The empirical distribution of drafted tokens is that of the row they come with."""
    table, temperature, n = Table(8, 0.5, {1: [(2, 0.6), (3, 0.3), (0, 0.1)]}), 0.7, 1500
    [row] = drawn_from(table, [1], temperature, vocab=5)
    drawn = torch.zeros(5)
    for seed in range(n):
        order = by_noise(lambda i, ids, seed=seed: gumbel(seed, i, torch.tensor(ids)), temperature)
        drawn[order(table.rows[1], 1)[0][1]] += 1 / n

    assert torch.softmax(torch.tensor([0.1, 0.6, 0.3]).log() / temperature, -1).tolist() == pytest.approx(
        row[[0, 2, 3]].tolist()
    )
    assert 0.5 * (drawn - row).abs().sum() < 0.04


def test_evidence_by_kind_is_what_was_right_of_what_was_tested():
    """Accepted drafts and their siblings; nothing after a rejected one. Older outcomes count less."""
    nodes = [Node(5, -1, 1, 0.5, (0, 3)), Node(6, -1, 1, 0.2, (1, 2)), Node(7, 0, 2, 0.2, (0, 3))]
    nodes.append(Node(8, 1, 2, 0.1, (0, 3)))
    evidence = Evidence()
    learn_path(evidence, nodes, (0,))

    counts = {kind: [c.accepted, c.tested] for kind, c in evidence.estimates.counts.items()}
    assert counts == {(0, 3): [1 * DECAY, 1 + DECAY], (1, 2): [0, 1]}


def test_a_kind_recovers_from_a_bad_round():
    evidence = Evidence()
    before = evidence.value((0, 4))
    for _ in range(20):
        evidence.learn((0, 4), False)
    low = evidence.value((0, 4))
    for _ in range(200):
        evidence.learn((0, 4), True)

    assert low < 0.3 * before < before < evidence.value((0, 4))


# in a run


@pytest.mark.parametrize(("trees", "width", "branches"), [(True, 8, True), (True, 1, False), (False, 8, False)])
def test_chains_where_a_target_takes_no_trees(trees, width, branches):
    """And where chains are asked for."""
    target = ToyTarget(seed=2, recurrent=False, trees=trees)
    _, seen = watch(Recycling(width=width, p_min=0.02), n=40, target=target)

    drafts = [part.draft for _, _, _, part in seen if part.draft]
    assert drafts and branches == any(d.depth < len(d) for d in drafts)
    assert branches == any(d.parents is not None for d in drafts)


@pytest.mark.parametrize(
    ("rule", "temperature", "proposal", "branches"),
    [
        (None, 0.8, "unknown", True),
        (None, 0.0, "deterministic", True),
        ("rejection", 0.8, "sampled", False),
        ("point-mass", 0.8, "deterministic", True),
    ],
)
def test_noise_is_read_where_it_helps(rule, temperature, proposal, branches):
    """With shared noise drafts follow the target's choice; rules that read probabilities get sampled drafts."""
    plugin = Recycling(p_min=0.02)
    run = Run(ToyTarget(seed=2, recurrent=False), methods=[("recycling", plugin)], rule=rule)
    drafts = []
    run.observe(lambda step: drafts.extend(p.draft for p in step.parts if p.draft))
    run.generate([1, 2, 3, 1, 2, 5], max_tokens=40, sampling=Sampling(temperature=temperature), seed=1).result

    assert {proposal} == {draft.proposal for draft in drafts}
    assert branches == any(draft.parents is not None for draft in drafts)


def test_trees_stay_within_their_bound():
    _, seen = watch(Recycling(p_min=0.0, nodes_max=7), n=30)

    assert max(len(part.draft) for _, _, _, part in seen if part.draft) == 7


def test_a_shared_matrix_helps_the_next_request():
    """The same text again takes fewer steps; by default their number is the same."""
    counts = {}
    for shared in (False, True):
        target = ToyTarget(seed=2, recurrent=False)
        run = Run(target, methods=[("recycling", {"shared": shared})], reuse=False)
        counts[shared] = [run.generate([1, 2, 3], max_tokens=60).result.stats["steps"] for _ in range(2)]

    assert counts[False][0] == counts[False][1]
    assert counts[True][1] < counts[True][0]


@pytest.fixture(scope="module")
def pico():
    return load("zoo:pico")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees_through_a_real_target(pico, temperature):
    """Texts equal plain decoding's bit for bit after rejected branches; the statistics are those of trees."""
    ask = {"max_tokens": 48, "seed": 5, "sampling": Sampling(temperature=temperature)}
    prompt = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n"
    plain = Run(pico).generate(prompt, **ask).result
    run = Run(pico, methods=["recycling:p_min=0.1"])
    trees = []
    run.observe(lambda step: trees.extend((p.draft, p.full_verdict.path) for p in step.parts if p.draft))
    result = run.generate(prompt, **ask).result

    assert plain.tokens == result.tokens
    moved = [path for draft, path in trees if path != tuple(range(len(path)))]
    assert moved, "the example needs kept paths that do not lie together"
    kept = [sum(len(path) > i for _, path in trees) for i in range(16)]
    reached = [sum(draft.depth > i for draft, _ in trees) for i in range(16)]
    tested = [
        sum(len(p) > i or (len(p) == i and bool(d.children(p[-1] if p else -1))) for d, p in trees) for i in range(16)
    ]
    assert result.stats["drafted"] == sum(len(draft) for draft, _ in trees)
    assert result.stats["marginal"] == [k / r for k, r in zip(kept, reached, strict=True) if r]
    assert result.stats["conditional"] == [k / t for k, t in zip(kept, tested, strict=True) if t]


def test_behind_every_leaf_of_a_tree_it_draws_with_noise_of_its_own(monkeypatch):
    """A rule may look behind one leaf after it rejected what was drawn behind another: equal noise would join them."""
    asked, chains, honest = requests(SAMPLINGS["sampled"]), [], DraftStep.noise
    begun = Begins(texts_of(ToyTarget(recurrent=False), asked), longest=2, branches=True)
    drawn: list[tuple] = []

    def note(step, seq, i, branch=0, ids=None):
        drawn.append((step.number, seq.name, i, branch))
        return honest(step, seq, i, branch, ids)

    monkeypatch.setattr(DraftStep, "noise", note)
    recycling = Recycling(p_min=0.02, extend=True)
    run = Run(ToyTarget(recurrent=False), [("begins", begun), ("recycling", recycling)], rule="traversal")
    run.observe(lambda step: chains.extend(sum(p.leaf >= 0 for p in part.pieces) for part in step.parts))
    ran(run, asked)

    assert max(chains) > 1, "no tree was extended behind two leaves"
    assert len(drawn) == len(set(drawn)) > 0
