"""Under rules with ratios the controller's decisions leave the distribution the target's: all drafts and coins.

The controller decides how much is drafted from what was accepted before and what it cost, and while drafting from the
chances of what was drawn. Every draft, every answer of chance and the next step that follows from them is enumerated.
"""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy

import numpy as np
import pytest
from spec_control.acceptance import TextStats as Known
from spec_rules import block, rejection, traversal

from spec_core import Draft, DraftAttempt, StepRecord
from tests.control.simulator import CURVES, DRAFTING, HOST, Simulation, chance
from tests.rules.exact import World, case_of, outcomes

rules = pytest.mark.parametrize("rule", [rejection, block, traversal], ids=lambda rule: rule.__name__.split(".")[1])
LENGTH, EXACT = 4, 1e-12


class TextStats:
    """One branch: what was emitted, and the planner as it is then. It plans every step, as one of a new text."""

    def __init__(self, curve):
        simulation = Simulation(CURVES[curve], chance(0.8), DRAFTING[curve], price=True, seed=1)
        self.curve, self.planner, self.text = curve, simulation.run(60).planner, ()
        self.limit = None

    def plan(self):
        """The longest draft and its price, or None."""
        plan = self.planner.plan({0: Known(("drafter",), 3)}, 1, trees=False)
        limit = self.limit = plan.limits.get("drafter")
        return (limit.length, limit.price) if limit else None

    def learn(self, tokens, drafted, depth, accepted, confidence):
        """Learn a step. tokens: emitted. drafted: tokens of its draft. depth: length of its longest path."""
        budget = self.limit.length if self.limit else 0
        judged = None
        if confidence is not None:
            judged = tuple((chance, i < accepted) for i, chance in enumerate(confidence[: accepted + 1]))
        tried = (DraftAttempt(0, "drafter", budget, drafted, depth, accepted, judged),) if drafted else ()
        forward, drafting = CURVES[self.curve](1 + drafted), DRAFTING[self.curve] * bool(drafted)
        seconds = {"verify": forward, "draft.drafter": drafting}
        total = forward + drafting + HOST
        self.planner.learn([StepRecord(0, total, seconds, 1, 1 + drafted, tokens, 100, tried, {"drafter"})], "auto")

    def after(self, ids, verdict, confidence=None):
        """The branch in which this draft was judged so."""
        other = deepcopy(self)
        other.text += (*(ids[i] for i in verdict.path), verdict.next_token)
        other.learn(len(verdict.path) + 1, len(ids), len(ids), len(verdict.path), confidence)
        return other


def drafts(world, text, length, price, drop):
    """Every draft with its weight: drawn token by token while the chance of what was drawn is at least the price."""

    def extend(ids, chance_of_ids, weight):
        row = world.q[(*text, *ids)]
        for token in row.nonzero()[0].tolist():
            after, survival = [*ids, token], chance_of_ids * row[token]
            if len(after) < length and survival >= price:
                yield from extend(after, survival, weight * row[token])
            else:
                yield (after[:-1] if drop and survival < price else after), weight * row[token]

    yield from extend([], 1.0, 1.0) if length else [([], 1.0)]


def distribution(world, rule, curve, drop=False):
    """Of all texts of LENGTH tokens; what is emitted beyond is cut. drop: the last token goes if it was unlikely."""
    chances = defaultdict(float)
    kinds = set()
    todo = [(TextStats(curve), 1.0)]
    while todo:
        branch, weight = todo.pop()
        if len(branch.text) >= LENGTH:
            chances[branch.text[:LENGTH]] += weight
            continue
        length, price = branch.plan() or (0, 0.0)
        longest = min(length, LENGTH - len(branch.text) - 1)
        for ids, drawn in drafts(world, branch.text, longest, max(0.3, price), drop):
            kinds.add(len(ids))
            for verdict, odds in verdicts(world, rule, branch.text, ids):
                todo.append((branch.after(ids, verdict), weight * drawn * odds))
    return np.array([chances[text] for text in world.texts()]), kinds


def verdicts(world, rule, text, ids):
    draft = Draft(ids, proposal="sampled") if ids else None
    p = lambda row: world.p[(*text, *ids[:row])]
    q = lambda i: world.q[(*text, *ids[:i])]
    if draft is None:
        for token in p(0).nonzero()[0].tolist():
            yield Chosen(token), p(0)[token]
        return
    yield from outcomes(rule.decisions, case_of(draft, p, q))


class Chosen:
    """Plain decoding's verdict."""

    path = ()

    def __init__(self, token):
        self.next_token = token


@rules
@pytest.mark.parametrize("curve", ["memory", "stepped"])
@pytest.mark.parametrize("seed", range(2))
def test_the_distribution_is_the_targets_with_the_controller_in_the_loop(rule, curve, seed):
    world = World(2, LENGTH, seed)
    chances, lengths = distribution(world, rule, curve)

    assert len(lengths) >= 3, "the controller never chose another length"
    assert np.abs(chances - world.distribution()).sum() / 2 < EXACT


@rules
def test_a_drawn_token_that_is_set_aside_shifts_the_distribution(rule):
    """The same enumeration, with the last token dropped for its own chance: no longer the target's distribution."""
    world = World(2, LENGTH, 0)
    chances, _ = distribution(world, rule, "memory", drop=True)

    assert np.abs(chances - world.distribution()).sum() / 2 > 1e-3
