"""Known mistakes that break losslessness: each shifts the distribution, its correct form does not.

The enumeration that passes the rules must find these, or it proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from exact import Weighted, World, case_of, distance, draws, outcomes, parents_of, prefix, strike
from spec_rules import block, rejection, traversal
from spec_rules.decisions import Draw, Trial

from spec_core import Draft
from spec_core.toolkit.distributions import point_mass as certain

SHIFTED, EXACT = 1e-3, 1e-12
CHAIN = (1, 1, 1)
Drafts = Iterable[Weighted]

chain_rules = pytest.mark.parametrize("rule", [rejection, block], ids=["rejection", "block"])


def chains(world: World) -> Iterator[Weighted]:
    return draws(world, CHAIN[: world.length - 1], chain=True)


def cut(drafts: Drafts, length: Callable[[Draft, list[np.ndarray]], int]) -> Iterator[Weighted]:
    """Drafted in full, verified in part. length: (draft, the rows it was drawn from) -> tokens that are verified."""
    for draft, rows, weight in drafts:
        n = length(draft, rows)
        yield Draft(draft.ids[:n], proposal="sampled"), rows[:n], weight


def first(flags: Iterable[bool], otherwise: int) -> int:
    return next((i for i, yes in enumerate(flags) if yes), otherwise)


# a draft that is dropped for what it is (7.1)


LOW = 0.3


def low(draft: Draft, rows: list[np.ndarray]) -> int:
    """The position of the first token with a low probability."""
    return first((q[x] < LOW for x, q in zip(draft.ids, rows, strict=True)), len(draft))


@chain_rules
def test_a_token_dropped_after_it_was_drawn_shifts_the_distribution(rule):
    world = World(3, 4, 1)

    assert distance(world, rule.decisions, cut(chains(world), low)) > SHIFTED


@chain_rules
def test_a_stop_behind_the_token_does_not(rule):
    """The drawn token is verified, even if it ended the draft."""
    world = World(3, 4, 1)

    after = cut(chains(world), lambda draft, rows: min(low(draft, rows) + 1, len(draft)))

    assert distance(world, rule.decisions, after) < EXACT


@chain_rules
def test_a_stop_by_the_row_before_the_draw_does_not(rule):
    """The entropy of q is known before anything is drawn from it."""
    world = World(3, 4, 1)
    sure = lambda draft, rows: first((q.max() < 0.6 for q in rows), len(draft))

    assert distance(world, rule.decisions, cut(chains(world), sure)) < EXACT


# a grammar (7.1)


FORBIDDEN = 2


def grammatical(world: World) -> World:
    """The drafter drafts a token that has probability 0 in the target."""
    world.p = {prefix: strike(row, (FORBIDDEN,)) for prefix, row in world.p.items()}
    return world


@chain_rules
def test_a_cut_at_a_forbidden_token_shifts_the_distribution(rule):
    world = grammatical(World(3, 4, 2))
    allowed_length = lambda draft, rows: first((x == FORBIDDEN for x in draft.ids), len(draft))

    assert distance(world, rule.decisions, cut(chains(world), allowed_length)) > SHIFTED


@chain_rules
def test_a_forbidden_token_that_is_kept_for_the_rule_does_not(rule):
    """Its chance is 0: the rule rejects it."""
    world = grammatical(World(3, 4, 2))

    assert distance(world, rule.decisions, chains(world)) < EXACT


@chain_rules
def test_a_grammar_applied_to_the_drafters_row_does_not(rule):
    """Masked and renormalised before drawing."""
    world = grammatical(World(3, 4, 2))
    world.q = {prefix: strike(row, (FORBIDDEN,)) for prefix, row in world.q.items()}

    assert distance(world, rule.decisions, chains(world)) < EXACT


# budgets over positions (7.2)


COSTS = (1.0, 1.0, 1.35, 1.35)
"""Costs of verifying 0 to 3 drafts: stepped, like the sizes a graph was captured for."""


def survivals(rows: list[np.ndarray]) -> np.ndarray:
    """Probability that 0, 1, ... drafts are accepted, estimated from the largest q of each row."""
    return np.cumprod([1.0, *(q.max() for q in rows)])


def best(chances: np.ndarray) -> int:
    """The length with the most expected tokens for its cost."""
    return int(np.argmax(chances.cumsum() / COSTS))


def descent(chances: np.ndarray) -> int:
    """The first length after which another token is worth less than before."""
    worth = chances.cumsum() / COSTS
    return first((b <= a for a, b in pairwise(worth)), len(worth) - 1)


@chain_rules
def test_the_best_budget_of_drafts_already_drawn_shifts_the_distribution(rule):
    """With stepped costs a later token decides whether an earlier one is verified."""
    world = World(3, 4, 1)
    budget = lambda draft, rows: best(survivals(rows))

    assert distance(world, rule.decisions, cut(chains(world), budget)) > SHIFTED


@chain_rules
def test_a_budget_found_step_by_step_does_not(rule):
    """It stops at the first descent, which no later token can change."""
    world = World(3, 4, 1)
    budget = lambda draft, rows: descent(survivals(rows))

    assert distance(world, rule.decisions, cut(chains(world), budget)) < EXACT


@chain_rules
@pytest.mark.parametrize("seed", range(4))
def test_the_best_budget_by_the_rows_of_a_block_does_not(rule, seed):
    """Rows that do not depend on drawn tokens are known before anything is drawn."""
    world = World(3, 4, seed, flat=True)
    budget = lambda draft, rows: best(survivals(rows))

    assert distance(world, rule.decisions, cut(chains(world), budget)) < EXACT


@chain_rules
def test_the_best_budget_by_the_drawn_tokens_of_a_block_shifts_the_distribution(rule):
    world = World(3, 4, 1, flat=True)
    own = lambda draft, rows: np.cumprod([1.0, *(q[x] for x, q in zip(draft.ids, rows, strict=True))])

    assert distance(world, rule.decisions, cut(chains(world), lambda draft, rows: best(own(draft, rows)))) > SHIFTED


# a wrong q (7.3)


def claim(drafts: Drafts, row: Callable[[Draft, int, np.ndarray], np.ndarray]) -> Iterator[Weighted]:
    """Drafts with other rows than they were drawn from. row: (draft, index, right one) -> the one that is told."""
    for draft, rows, weight in drafts:
        yield draft, [row(draft, i, q) for i, q in enumerate(rows)], weight


def drafting(world: World, change: Callable[[np.ndarray], np.ndarray]) -> World:
    """The same target with a drafter that draws from changed distributions."""
    other = World(world.vocab, world.length, world.seed)
    other.q = {prefix: change(row) for prefix, row in world.q.items()}
    return other


def greedy(row: np.ndarray) -> np.ndarray:
    return certain(int(row.argmax()), len(row))


def sharpen(row: np.ndarray) -> np.ndarray:
    """Another temperature."""
    return row**2 / (row**2).sum()


def prune(row: np.ndarray) -> np.ndarray:
    """Only the two likeliest tokens, renormalised."""
    return strike(row, (int(row.argmin()),))


@chain_rules
@pytest.mark.parametrize("change", [greedy, sharpen, prune], ids=lambda change: change.__name__)
def test_a_distribution_from_before_the_draw_was_shaped_shifts_the_distribution(rule, change):
    """Greedy drafts declared as sampled; rows before the drafter's own temperature, or before it was pruned."""
    world = World(3, 4, 4)
    drafter = drafting(world, change)
    claimed = claim(chains(drafter), lambda draft, i, q: world.q[draft.ids[:i]])

    assert distance(world, rule.decisions, claimed) > SHIFTED
    assert distance(world, rule.decisions, chains(drafter)) < EXACT, "with the rows it was really drawn from"


@chain_rules
def test_a_pruned_distribution_that_was_not_renormalised_shifts_the_distribution(rule):
    world = World(3, 4, 4)
    cut_holes = lambda draft, i, q: world.q[draft.ids[:i]] * (q > 0)

    assert distance(world, rule.decisions, claim(chains(drafting(world, prune)), cut_holes)) > SHIFTED


@chain_rules
def test_a_distribution_in_bfloat16_shifts_the_distribution(rule):
    """Three digits are too few over several positions."""
    world = World(3, 4, 2)
    round_row = lambda draft, i, q: torch.from_numpy(q).bfloat16().double().numpy()

    assert distance(world, rule.decisions, claim(chains(world), round_row)) > SHIFTED


@chain_rules
def test_rows_of_another_step_shift_the_distribution(rule):
    """As after a partial acceptance, if the rows were not moved."""
    world = World(3, 4, 5)
    stale = lambda draft, i, q: world.q[draft.ids[1:i]]

    assert distance(world, rule.decisions, claim(chains(world), stale)) > SHIFTED


# siblings (3)


tree_rules = pytest.mark.parametrize("rule", [rejection, traversal], ids=["rejection", "traversal"])


@tree_rules
def test_the_likeliest_tokens_tested_as_if_drawn_shift_the_distribution(rule):
    """The k best of q are a function of the text; the ratios p / q are for samples."""
    world = World(3, 3, 6)
    parents = parents_of((2, 1))
    ids: list[int] = []
    for i, parent in enumerate(parents):
        order = np.argsort(-world.q[prefix(Draft(ids, parents=parents[:i]), parent)])
        ids.append(int(order[parents[:i].count(parent)]))
    draft = Draft(ids, proposal="sampled", parents=parents)
    softmax = [world.q[prefix(draft, parent)] for parent in parents]

    assert distance(world, rule.decisions, [(draft, softmax, 1.0)]) > SHIFTED


@tree_rules
def test_siblings_without_replacement_told_as_with_it_shift_the_distribution(rule):
    """After a rejection q must lose the token too."""
    world = World(3, 3, 6)
    claimed = claim(draws(world, (2, 1)), lambda draft, i, q: world.q[prefix(draft, draft.parents[i])])

    assert distance(world, rule.decisions, claimed) > SHIFTED


@tree_rules
def test_siblings_tested_in_another_order_than_drawn_shift_the_distribution(rule):
    """Sorted by probability, with the rows that this order would have had."""
    world = World(3, 2, 6)

    assert distance(world, rule.decisions, by_probability(world)) > SHIFTED


def by_probability(world: World) -> Iterator[Weighted]:
    q = world.q[()]
    for draft, _, weight in draws(world, (2,)):
        ids = sorted(draft.ids, key=lambda x: -q[x])
        yield Draft(ids, proposal="sampled", parents=draft.parents), [q, strike(q, (ids[0],))], weight


# noise that is met again (a rule that looks ahead must not share it)


def two_steps(world: World, rule: Callable, again: bool) -> np.ndarray:
    """The distribution of three tokens when a rejected position is drafted again: from the same noise, or from new.

    The drafter's distributions depend on the position only, so that its token is a function of that position's noise.
    """
    row = np.zeros(world.vocab**world.length)
    for draft, rows, weight in draws(world, (1, 1), chain=True):
        for verdict, chance in outcomes(rule, case_of(draft, world.rows(draft), rows.__getitem__)):
            text = (*(draft.ids[i] for i in verdict.path), verdict.next_token)
            seconds = enumerate(rows[1]) if not again else [(draft.ids[1], 1.0)]
            for x, one in seconds if len(text) == 1 else ():
                for emitted, more in second_step(world, rule, text, x, rows[1]).items():
                    row += weight * chance * one * more * world.distribution(emitted)
            if len(text) > 1:
                row += weight * chance * world.distribution(text)
    return row


def second_step(world: World, rule: Callable, text: tuple[int, ...], x: int, q: np.ndarray) -> dict:
    """{text: chance} after a draft of the token x."""
    case = case_of(Draft([x], proposal="sampled"), lambda row: world.p[(*text, x)[: len(text) + row]], lambda j: q)
    chances: dict[tuple[int, ...], float] = defaultdict(float)
    for verdict, chance in outcomes(rule, case):
        chances[(*text, *([x] if verdict.path else []), verdict.next_token)] += chance
    return chances


@pytest.mark.parametrize("rule, again, shifts", [
    (block, True, True),
    (block, False, False),
    (rejection, True, False),
    (rejection, False, False),
], ids=["block-shared", "block-private", "rejection-shared", "rejection-private"])  # fmt: skip
def test_a_rule_that_looks_ahead_must_not_meet_the_same_noise_again(rule, again, shifts):
    """Block verification rejects a position for tokens after it; from the same numbers they would come again."""
    world = World(3, 3, 8, flat=True)
    off = float(np.abs(two_steps(world, rule.decisions, again) - world.distribution()).sum() / 2)

    assert off > SHIFTED if shifts else off < EXACT


@pytest.mark.parametrize("rule, shifts", [(traversal, True), (rejection, False)], ids=["traversal", "rejection"])
def test_a_rule_that_looks_below_needs_branches_drawn_apart(rule, shifts):
    """One noise for all nodes of a depth makes the same token follow both siblings; rejected once, it comes again."""
    world = World(3, 3, 9, flat=True)
    alike = ((draft, rows, weight / rows[2][draft.ids[2]]) for draft, rows, weight in draws(world, (2, 1))
             if draft.ids[2] == draft.ids[3])  # fmt: skip
    off = distance(world, rule.decisions, alike)

    assert off > SHIFTED if shifts else off < EXACT


def test_the_enumeration_follows_every_outcome():
    """A trial, then a draw after each of its outcomes: four verdicts, and their probabilities add up to one."""
    weights = torch.tensor([1.0, 0.0, 3.0])
    trial = Trial(torch.tensor(1.0), torch.tensor(4.0), lambda: Draw((0,), weights), lambda: Draw((), weights))
    verdicts = {(verdict.path, verdict.next_token): chance for verdict, chance in outcomes(lambda case: trial, None)}

    assert verdicts == {((0,), 0): 1 / 16, ((0,), 2): 3 / 16, ((), 0): 3 / 16, ((), 2): 9 / 16}
