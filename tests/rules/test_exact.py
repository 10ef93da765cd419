"""Lossless rules are lossless: the emitted text is distributed as the target's, by enumeration of drafts and coins."""

from __future__ import annotations

import numpy as np
import pytest
from exact import World, distance, draws, emitted_per_step, parents_of, prefix
from spec_rules import block, k_seq, point_mass, rejection, traversal

from spec_core import Draft
from spec_core.toolkit.distributions import point_mass as certain

EXACT = 1e-12
RULES = {"rejection": rejection, "block": block, "traversal": traversal, "k-seq": k_seq, "point-mass": point_mass}
SHAPES = {"1-1": (1, 1), "2-1": (2, 1), "2-2": (2, 2), "3-2": (3, 2)}
KINDS = {"random": {}, "sparse": {"sparse": True}, "equal": {"same": True}}

rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@rules
@kinds
@pytest.mark.parametrize("seed", range(4))
def test_a_chain_of_three_is_judged_without_loss(rule, kind, seed):
    """Total variation below 1e-12, with tokens that neither or only one of the two can draw, and with q = p."""
    world = World(3, 4, seed, **kind)

    assert distance(world, rule.decisions, draws(world, (1, 1, 1), chain=True)) < EXACT


@pytest.mark.repeats(10)
@rules
@pytest.mark.parametrize("kind", [{}, {"sparse": True}], ids=["random", "sparse"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_trees_drawn_with_replacement_are_judged_without_loss(rule, kind, shape):
    """Siblings may be equal."""
    world = World(2 if shape[1] > 1 else 3, 3, 7, **kind)

    assert distance(world, rule.decisions, draws(world, shape, replace=True)) < EXACT


@pytest.mark.repeats(5)
@pytest.mark.parametrize("rule", [rejection, traversal, block, point_mass], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_trees_drawn_without_replacement_are_judged_without_loss(rule, shape):
    """The row of a sibling is what was left when it was drawn, down to a single token."""
    world = World(3, 3, 11)

    assert distance(world, rule.decisions, draws(world, shape)) < EXACT


def likeliest(world: World, shape: tuple[int, ...]) -> list:
    """The k most likely tokens of the drafter at every node: a function of the text, each a point mass."""
    parents = parents_of(shape)
    ids: list[int] = []
    for i, parent in enumerate(parents):
        order = np.argsort(-world.q[prefix(Draft(ids, parents=parents[:i]), parent)])
        ids.append(int(order[parents[:i].count(parent)]))
    return [(Draft(ids, parents=parents), [certain(token, world.vocab) for token in ids], 1.0)]


@rules
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_deterministic_drafts_are_judged_without_loss(rule, shape, seed):
    world = World(4, 3, seed)

    assert distance(world, rule.decisions, likeliest(world, shape)) < EXACT


@pytest.mark.parametrize("rule", [rejection, k_seq, traversal], ids=lambda rule: rule.__name__)
def test_point_masses_are_kept_as_often_as_the_target_draws_them(rule):
    """With deterministic children every rule is sample-then-match, in any order of its tests."""
    world = World(4, 3, 2)
    drafts = likeliest(world, (2, 2))
    plain = emitted_per_step(world, point_mass.decisions, drafts)

    assert emitted_per_step(world, rule.decisions, drafts) == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_block_keeps_more_than_rejection_of_the_same_chains(seed):
    """Theorem 2 of 2403.10444: never less."""
    world = World(3, 4, seed)
    drafts = list(draws(world, (1, 1, 1), chain=True))
    one_by_one = emitted_per_step(world, rejection.decisions, drafts)

    assert emitted_per_step(world, block.decisions, drafts) > one_by_one


def test_traversal_of_a_chain_is_block_verification():
    """The same lengths with the same probabilities."""
    world = World(3, 4, 5)
    drafts = list(draws(world, (1, 1, 1), chain=True))

    assert emitted_per_step(world, traversal.decisions, drafts) == pytest.approx(
        emitted_per_step(world, block.decisions, drafts), abs=1e-12
    )


@pytest.mark.parametrize("shape", [(2, 1), (2, 2)], ids=str)
def test_traversal_keeps_more_than_rejection_of_the_same_trees(shape):
    world = World(3, 3, 3)
    drafts = list(draws(world, shape))
    top_down = emitted_per_step(world, rejection.decisions, drafts)

    assert emitted_per_step(world, traversal.decisions, drafts) > top_down + 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_one_draft_is_rejected_as_often_as_total_variation_says(seed):
    """1 - TV(p, q) = sum of min(p, q): no rule for one draft accepts more, and all with ratios reach it."""
    world = World(4, 2, seed)
    best = 1 + np.minimum(world.p[()], world.q[()]).sum()
    drafts = list(draws(world, (1,), chain=True))

    for rule in (rejection, block, traversal, k_seq):
        assert emitted_per_step(world, rule.decisions, drafts) == pytest.approx(best, abs=1e-12)
    assert emitted_per_step(world, point_mass.decisions, drafts) == pytest.approx(
        1 + world.p[()] @ world.q[()], abs=1e-12
    )
