"""The bounds of the acceptance table: no lossless rule passes them, and they are reached where it is known."""

from __future__ import annotations

import numpy as np
import pytest
from exact import World, draws, emitted_per_step
from spec_rules import block, k_seq, point_mass, rejection, traversal

from benchmarks.acceptance import (
    ON_CHAINS,
    ON_TREES,
    chain_bound,
    draw_tree,
    independent,
    independent_inside,
    measure,
    transport_bound,
    without_inside,
    worlds_of,
)

RULES = (rejection, block, traversal, k_seq, point_mass)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("replace", [True, False], ids=["with-replacement", "without-replacement"])
def test_no_rule_accepts_more_siblings_than_optimal_transport(seed, k, replace):
    """The exact chance of every rule, by enumeration; one draft reaches the bound 1 - TV."""
    world = World(4, 2, seed)
    p, q = world.p[()], world.q[()]
    bound = transport_bound(p, (independent_inside if replace else without_inside)(q, k))
    rules = [rule for rule in RULES if rule is not k_seq or replace or k == 1]
    acceptance = {r.__name__: emitted_per_step(world, r.decisions, draws(world, (k,), replace)) - 1 for r in rules}

    assert all(chance <= bound + 1e-12 for chance in acceptance.values()), (acceptance, bound)
    if k == 1:
        assert bound == pytest.approx(np.minimum(p, q).sum())
        assert acceptance["spec_rules.rejection"] == pytest.approx(bound)


def test_what_lies_inside_a_set_is_counted_without_replacement():
    """By hand, for two draws from three tokens."""
    q = np.array([0.5, 0.3, 0.2])
    inside = without_inside(q, 2)(np.array([True, True, False]))

    assert inside == pytest.approx(0.5 * 0.3 / 0.5 + 0.3 * 0.5 / 0.7)
    assert without_inside(q, 2)(np.array([True, False, False])) == 0
    assert without_inside(q, 3)(np.array([True, True, True])) == pytest.approx(1)


def test_a_chain_keeps_no_more_than_its_bound():
    """The measured table in small; block is nearer than rejection."""
    worlds = worlds_of((8, 1.0, 1.0), (1, 1, 1))[:5]
    means_by_rule = measure(ON_CHAINS, worlds, 1000)
    means = []
    for i, world in enumerate(worlds):
        rng = np.random.default_rng([i, 1])
        means.append(np.mean([chain_bound(world, draw_tree(world, independent, rng)) for _ in range(200)]))

    assert means_by_rule["point-mass"] < means_by_rule["rejection"] < means_by_rule["block"] < np.mean(means) + 0.1


def test_trees_of_one_level_are_siblings():
    """Their measured acceptance is near the exact bound, from below."""
    worlds = worlds_of((8, 1.0, 0.5), (2,))[:5]
    means_by_rule = measure({name: ON_TREES[name] for name in ("k-seq", "rejection, with replacement")}, worlds, 2000)
    bound = 1 + np.mean([transport_bound(w.p[0], independent_inside(w.q[0], 2)) for w in worlds])

    assert means_by_rule["rejection, with replacement"] < means_by_rule["k-seq"] + 0.03 < bound + 0.06
