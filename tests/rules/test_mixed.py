"""Drafts that one method began and another went on with: every rule judges them without loss, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from exact import Weighted, World, case_of, distance, outcomes, prefix
from spec_rules import block, k_seq, point_mass, rejection, traversal

from spec_core import Draft
from spec_core.contract.splice import join_drafts, leaves
from spec_core.toolkit import draft_distribution
from tests.support.pairs import every_pair

EXACT, SHIFTED = 1e-12, 1e-3
RULES = {"rejection": rejection, "block": block, "traversal": traversal, "k-seq": k_seq, "point-mass": point_mass}
MIXES = ["".join(mix) for n in (1, 2, 3) for mix in itertools.product("sd", repeat=n)]
"""Kinds of the tokens of a chain: sampled or deterministic."""

Further = Callable[[World, Draft | None, int], Iterator[tuple[Draft, float]]]
"""Drafts of one method behind a leaf, each with its probability."""

rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def sample(world: World, draft: Draft | None, leaf: int) -> Iterator[tuple[Draft, float]]:
    q = world.q[prefix(draft, leaf) if draft else ()]
    rows = torch.from_numpy(q)[None]
    for token in q.nonzero()[0].tolist():
        yield Draft([token], probs=rows), float(q[token])


def siblings(world: World, draft: Draft | None, leaf: int) -> Iterator[tuple[Draft, float]]:
    """Two tokens drawn independently from one distribution."""
    q = world.q[prefix(draft, leaf) if draft else ()]
    rows = torch.from_numpy(np.stack([q, q]))
    for pair in itertools.product(q.nonzero()[0].tolist(), repeat=2):
        yield Draft(pair, probs=rows, parents=[-1, -1]), float(q[pair[0]] * q[pair[1]])


def likeliest(world: World, draft: Draft | None, leaf: int) -> Iterator[tuple[Draft, float]]:
    yield Draft([int(world.q[prefix(draft, leaf) if draft else ()].argmax())]), 1.0


def two_likeliest(world: World, draft: Draft | None, leaf: int) -> Iterator[tuple[Draft, float]]:
    best = np.argsort(-world.q[prefix(draft, leaf) if draft else ()])[:2]
    yield Draft(best.tolist(), parents=[-1, -1]), 1.0


METHODS: dict[str, Further] = {"s": sample, "d": likeliest, "S": siblings, "D": two_likeliest}


def splice(world: World, methods: str) -> Iterator[Weighted]:
    """One method after the other, each behind every leaf; rows are read from the draft as a rule does."""
    drafts: list[tuple[Draft | None, float]] = [(None, 1.0)]
    for further in map(METHODS.__getitem__, methods):
        drafts = [grown for draft, weight in drafts for grown in behind_leaves(world, draft, weight, further)]
    for draft, weight in drafts:
        assert draft is not None
        yield draft, [draft_distribution(draft, j, world.vocab) for j in range(len(draft))], weight


def behind_leaves(world: World, draft: Draft | None, weight: float, further: Further) -> list[tuple[Draft, float]]:
    if draft is None:
        return [(more, weight * chance) for more, chance in further(world, None, -1)]
    grown = [(draft, weight)]
    for leaf in leaves(draft):
        grown = [
            (join_drafts(whole, more, leaf), so_far * chance)
            for whole, so_far in grown
            for more, chance in further(world, whole, leaf)
        ]
    return grown


@every_pair(rule=RULES, methods=MIXES, sparse=[False, True])
def test_a_chain_of_several_methods_is_judged_without_loss(rule, methods, sparse):
    world = World(3, 4, 5, sparse=sparse)

    assert distance(world, RULES[rule].decisions, splice(world, methods)) < EXACT


@rules
@pytest.mark.parametrize("methods", ["Sd", "Ds", "SD", "DS", "dS", "sD", "sSd"])
def test_a_tree_of_several_methods_is_judged_without_loss(rule, methods):
    """Of every leaf all children come from one method."""
    world = World(2 if len(methods) + methods.count("S") > 2 else 3, 3 if len(methods) < 3 else 4, 9)

    assert distance(world, rule.decisions, splice(world, methods)) < EXACT


# known mistakes: each must be found, or the enumeration proves nothing


@pytest.mark.parametrize("rule", [rejection, block, traversal], ids=lambda rule: rule.__name__)
def test_a_chance_of_one_for_a_sampled_token_shifts_the_distribution(rule):
    """With a whole point mass in place of its row, the token would rightly be judged as one that was not drawn."""
    world = World(3, 4, 5)

    def certain() -> Iterator[Weighted]:
        for draft, rows, weight in splice(world, "sd"):
            row = rows[0].copy()
            row[draft.ids[0]] = 1.0
            yield draft, [row, *rows[1:]], weight

    assert distance(world, rule.decisions, certain()) > SHIFTED


@pytest.mark.parametrize("rule", [rejection, block, traversal], ids=lambda rule: rule.__name__)
def test_a_drawn_token_that_is_dropped_for_an_extension_shifts_the_distribution(rule):
    """An unlikely token is replaced by the likeliest one of another method."""
    world = World(3, 4, 5)

    def replace_drawn() -> Iterator[Weighted]:
        for draft, rows, weight in splice(world, "sd"):
            if rows[0][draft.ids[0]] < 0.4:
                other = next(iter(splice(world, "dd")))
                yield other[0], other[1], weight
            else:
                yield draft, rows, weight

    assert distance(world, rule.decisions, replace_drawn()) > SHIFTED


def test_k_seq_refuses_siblings_of_two_methods():
    """The core never makes them: an extension stands at a leaf."""
    q = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    drawn = Draft([0, 1], probs=torch.cat([q, torch.tensor([[0.0, 1.0]], dtype=torch.float64)]), parents=[-1, -1])
    case = case_of(drawn, lambda row: np.array([0.5, 0.5]), lambda j: draft_distribution(drawn, j, 2))

    with pytest.raises(ValueError, match="different rows of probs"):
        list(outcomes(k_seq.decisions, case))
