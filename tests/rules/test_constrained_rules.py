"""Every rule under a constraint: the text has the distribution of plain constrained decoding, by enumeration.

The masks are the core's masks for a draft, with full rows where nothing can follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import attrs
import numpy as np
import pytest
from exact import Weighted, World, case_of, draws, outcomes, prefix, strike
from spec_rules import block, k_seq, point_mass, rejection, traversal

from spec_core import Draft
from spec_core.contract.matcher import draft_masks
from spec_core.sampling.choose import unpack_mask

EXACT, SHIFTED = 1e-12, 1e-3
RULES = {"rejection": rejection, "block": block, "traversal": traversal, "k-seq": k_seq, "point-mass": point_mass}
CHAIN, TREES = (1, 1, 1), {"2-1": (2, 1), "2-2": (2, 2)}
VOCAB = 3
Masks = Callable[[Draft], np.ndarray]

rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@attrs.define(eq=False)
class Matcher:
    """No token follows itself, and 2 is never first."""

    tokens: list[int] = attrs.field(factory=list)
    complete = False

    def bits(self, text: list[int]) -> int:
        return 0b111 & ~(1 << text[-1]) if text else 0b011

    def advance(self, token: int) -> bool:
        if not self.bits(self.tokens) >> token & 1:
            return False
        self.tokens.append(token)
        return True

    def rollback(self, count: int) -> None:
        del self.tokens[len(self.tokens) - count :]

    def masks(self, drafted) -> np.ndarray:
        text, rows = list(self.tokens), []
        for token in (*drafted, None):
            rows.append([self.bits(text)])
            if token is None or not rows[-1][0] >> token & 1:
                break
            text.append(token)
        return np.array(rows, np.uint32)


def masks_of(draft: Draft) -> np.ndarray:
    return draft_masks(Matcher(), draft, frozenset(), VOCAB)


def mask_row(row: np.ndarray, mask: np.ndarray) -> np.ndarray:
    row = np.where(unpack_mask(mask, VOCAB).numpy(), row, 0.0)
    return row / row.sum()


def allowed_rows(rows: dict) -> dict:
    """Every distribution under the mask of its prefix."""
    bits = Matcher().bits
    forbidden_tokens = lambda text: tuple(i for i in range(VOCAB) if not bits(list(text)) >> i & 1)
    return {text: strike(row, forbidden_tokens(text)) for text, row in rows.items()}


def with_rows(world: World, **rows: dict) -> World:
    copy = World(world.vocab, world.length, world.seed)
    copy.p, copy.q = rows.get("p", world.p), rows.get("q", world.q)
    return copy


def constrained_distance(world: World, rule, drafts: Iterable[Weighted], masks: Masks = masks_of) -> float:
    """Total variation to plain constrained decoding."""
    constrained, emitted = with_rows(world, p=allowed_rows(world.p)), defaultdict(float)
    for draft, rows, weight in drafts:
        mask = masks(draft)
        p = lambda row, draft=draft, mask=mask: mask_row(world.p[prefix(draft, row - 1)], mask[row])
        for verdict, chance in outcomes(rule.decisions, case_of(draft, p, rows.__getitem__)):
            text = (*(draft.ids[i] for i in verdict.path), verdict.next_token)
            emitted[text] += weight * chance
    actual = sum(weight * constrained.distribution(text) for text, weight in emitted.items())
    return float(np.abs(actual - constrained.distribution()).sum() / 2)


def chains(world: World) -> Iterator[Weighted]:
    return draws(world, CHAIN, chain=True)


@rules
@pytest.mark.parametrize("seed", range(3))
def test_chains_with_forbidden_tokens_are_judged_without_loss(rule, seed):
    world = World(VOCAB, 4, seed)

    assert constrained_distance(world, rule, chains(world)) < EXACT


@pytest.mark.repeats(5)
@rules
@pytest.mark.parametrize("replace", [True, False], ids=["with-replacement", "without"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_trees_with_forbidden_tokens_are_judged_without_loss(rule, shape, replace):
    if rule is k_seq and not replace:
        pytest.skip("k-seq refuses siblings of other rows")
    world = World(VOCAB, 3, 5)

    assert constrained_distance(world, rule, draws(world, shape, replace=replace)) < EXACT


@rules
def test_chains_drawn_under_the_mask_are_judged_without_loss(rule):
    """The drafter masks and renormalises before it draws."""
    world = World(VOCAB, 4, 1)
    masking = with_rows(world, q=allowed_rows(world.q))

    assert constrained_distance(world, rule, chains(masking)) < EXACT


# mistakes


@pytest.mark.parametrize("rule", [rejection, block, traversal], ids=lambda rule: rule.__name__)
def test_a_draft_cut_at_its_first_forbidden_token_shifts_the_distribution(rule):
    """The draft is shorter because of what was drawn."""

    def cut(drafts):
        for draft, rows, weight in drafts:
            text = list(draft.ids)
            n = next((i for i, token in enumerate(text) if not Matcher().bits(text[:i]) >> token & 1), len(text))
            yield Draft(text[:n], proposal="sampled"), rows[:n], weight

    world = World(VOCAB, 4, 2)

    assert constrained_distance(world, rule, cut(chains(world))) > SHIFTED


@rules
def test_masks_of_the_first_row_alone_shift_the_distribution(rule):
    def first_only(draft):
        rows = masks_of(draft)
        rows[1:] = 0b111
        return rows

    world = World(VOCAB, 4, 2)

    assert constrained_distance(world, rule, chains(world), first_only) > SHIFTED


@rules
def test_a_mask_that_ignores_the_drafted_tokens_shifts_the_distribution(rule):
    """Every row is masked as the first."""
    stale = lambda draft: np.repeat(masks_of(draft)[:1], 1 + len(draft), 0)
    world = World(VOCAB, 4, 2)

    assert constrained_distance(world, rule, chains(world), stale) > SHIFTED


@pytest.mark.parametrize("rule", [rejection, block, traversal, k_seq], ids=lambda rule: rule.__name__)
def test_a_drafter_that_hides_its_mask_shifts_the_distribution(rule):
    """Drawn under the mask, but said to come from the unmasked row."""
    world = World(VOCAB, 4, 2)
    masking = with_rows(world, q=allowed_rows(world.q))
    claimed = (
        (draft, [world.q[prefix(draft, i - 1)] for i in range(len(draft))], weight)
        for draft, _, weight in chains(masking)
    )

    assert constrained_distance(world, rule, claimed) > SHIFTED
