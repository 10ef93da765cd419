"""Trees over the rows of a block, as its drafter grows them: every rule keeps the target's distribution."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch
from exact import World, distance, emitted_per_step
from spec_methods.block_drafters.sequential import Conditional
from spec_methods.block_drafters.trees import BlockTree
from spec_rules import block, k_seq, point_mass, rejection, traversal

from spec_core import Draft, Sampling
from spec_core.toolkit import TokenDrafter, TreeLimits
from spec_core.toolkit.distributions import point_mass as certain

EXACT = 1e-12
RULES = {"rejection": rejection, "block": block, "traversal": traversal, "k-seq": k_seq, "point-mass": point_mass}
DEPTH = 3
LIMITS = {"wide": (4, 12), "narrow": (2, 14), "few": (3, 5)}
"""Children of a node, and nodes of a tree."""


@attrs.define
class Rows:
    """A sequential part: rows of a block, plus a row by the token before where there is a matrix [V, V]."""

    matrix: torch.Tensor | None

    @property
    def sequential(self) -> bool:
        return self.matrix is not None

    def follow(self, rows: list) -> list[Conditional]:
        return [Conditional(row if self.matrix is None else row + self.matrix[token]) for token, row, _ in rows]


def grow(vocab: int, seed: int, width: int, nodes: int, sequential: bool) -> Draft:
    """The tree of a request that samples with noise of its own, over random marginals."""
    numbers = torch.Generator().manual_seed(seed)
    rows, matrix = (2 * torch.randn(n, vocab, generator=numbers) for n in (DEPTH, vocab))
    seq = SimpleNamespace(sampling=Sampling(temperature=1.0), matcher=None, tokens=[1], prompt_len=1)
    part, limits = Rows(matrix if sequential else None), TreeLimits(DEPTH, nodes, width, 0.0)
    return BlockTree(
        SimpleNamespace(private=True), seq, TokenDrafter(0.0), part, limits, rows, torch.zeros(DEPTH, 1), 0.8
    ).draft()


def drafts_of(world: World, draft: Draft) -> list:
    """A tree is a function of the text before it: each of its tokens is certain."""
    return [(draft, [certain(token, world.vocab) for token in draft.ids], 1.0)]


@pytest.mark.parametrize("sequential", [False, True], ids=["marginals", "by the token before"])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_tree_of_a_block_is_judged_without_loss(rule, limits, sequential):
    """Total variation below 1e-12, of random targets, among them some that give tokens no chance."""
    for seed in range(4):
        world = World(4, DEPTH + 1, seed, sparse=bool(seed % 2))
        draft = grow(world.vocab, seed, *limits, sequential)

        assert draft.proposal == "deterministic" and draft.probs is None
        assert distance(world, rule.decisions, drafts_of(world, draft)) < EXACT


@pytest.mark.parametrize("sequential", [False, True])
def test_the_trees_branch_at_several_depths(sequential):
    trees = [grow(4, seed, 4, 12, sequential) for seed in range(4)]

    assert len({tuple(tree.parents) for tree in trees}) > 1
    assert {tree.depth for tree in trees} == {DEPTH}
    for tree in trees:
        depths = [len(tree.ancestry(parent)) for parent in {p for p in tree.parents if tree.parents.count(p) > 1}]
        assert len(set(depths)) > 1


@pytest.mark.parametrize("rule", [rejection, k_seq, traversal, block], ids=lambda rule: rule.__name__)
def test_every_rule_keeps_as_much_of_a_tree_as_the_target_draws(rule):
    for seed in range(3):
        world = World(4, DEPTH + 1, seed)
        drafts = drafts_of(world, grow(4, seed, 3, 10, True))

        plain = emitted_per_step(world, point_mass.decisions, drafts)
        assert emitted_per_step(world, rule.decisions, drafts) == pytest.approx(plain, abs=EXACT)


def test_a_rule_that_favours_drafts_changes_the_distribution():
    """The enumeration sees it on these trees."""
    world, draft = World(4, DEPTH + 1, 0), grow(4, 0, 3, 10, False)
    rows = [np.full(world.vocab, 1 / world.vocab) for _ in draft.ids]

    assert distance(world, rejection.decisions, [(draft, rows, 1.0)]) > 1e-3
