"""Under rules with ratios the controller's decisions leave the distribution the target's: all drafts and coins.

The controller decides how much is drafted from what was accepted before and what it cost, and while drafting from the
chances of what was drawn. Every draft, every answer of chance and the next step that follows from them is enumerated.
"""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy

import numpy as np
import pytest
from spec_control.pacer import Pacer
from spec_control.track import Done, Track
from spec_rules import block, rejection, traversal

from spec_core import Draft
from tests.control.simulator import CURVES, DRAFTING, HOST
from tests.rules.exact import World, case_of, outcomes

rules = pytest.mark.parametrize("rule", [rejection, block, traversal], ids=lambda rule: rule.__name__.split(".")[1])
LENGTH, EXACT = 4, 1e-12


class Text:
    """One branch: what was emitted, and the controller as it is then."""

    def __init__(self, curve):
        self.curve, self.pacer, self.text = curve, Pacer(), ()
        self.pacer.choice.longest = 3
        self.pacer.steps = 2
        self.track = Track((self.pacer.arm("drafter"),))
        self.track.arms[0].priced = True
        self.settle(1, 0, {})

    def settle(self, tokens, drafted, used):
        forward = CURVES[self.curve](1 + drafted)
        whole = forward + HOST + DRAFTING[self.curve] * bool(drafted)
        self.pacer.settle(Done(1, 100, 1 + drafted, tokens, used, cold=0, stands=1), forward, whole)

    def after(self, ids, verdict, granted):
        """The branch in which this draft was judged so."""
        other = deepcopy(self)
        other.text += (*(ids[i] for i in verdict.path), verdict.next_token)
        if ids:
            arm = other.track.arms[0]
            other.pacer.learn(other.track, arm, len(ids), len(ids), len(verdict.path), granted)
        other.settle(len(verdict.path) + 1, len(ids), {other.track.arms[0]: len(ids)} if ids else {})
        return other


def drafts(world, text, length, price, drop):
    """Every draft with its weight: drawn token by token while the chance of what was drawn is at least the price."""

    def extend(ids, chance, weight):
        row = world.q[(*text, *ids)]
        for token in row.nonzero()[0].tolist():
            after, survival = [*ids, token], chance * row[token]
            if len(after) < length and survival >= price:
                yield from extend(after, survival, weight * row[token])
            else:
                yield (after[:-1] if drop and survival < price else after), weight * row[token]

    yield from extend([], 1.0, 1.0) if length else [([], 1.0)]


def distribution(world, rule, curve, drop=False):
    """Of all texts of LENGTH tokens; what is emitted beyond is cut. drop: the last token goes if it was unlikely."""
    found = defaultdict(float)
    kinds = set()
    todo = [(Text(curve), 1.0)]
    while todo:
        branch, weight = todo.pop()
        if len(branch.text) >= LENGTH:
            found[branch.text[:LENGTH]] += weight
            continue
        grants = branch.pacer.plan([branch.track], 1, 100)[0]
        longest = min(grants[0].length if grants else 0, LENGTH - len(branch.text) - 1)
        for ids, drawn in drafts(world, branch.text, longest, max(0.3, grants[0].price) if grants else 0.0, drop):
            kinds.add(len(ids))
            for verdict, chance in judged(world, rule, branch.text, ids):
                todo.append((branch.after(ids, verdict, longest), weight * drawn * chance))
    return np.array([found[text] for text in world.texts()]), kinds


def judged(world, rule, text, ids):
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
    found, lengths = distribution(world, rule, curve)

    assert len(lengths) >= 3, "the controller never chose another length"
    assert np.abs(found - world.distribution()).sum() / 2 < EXACT


@rules
def test_a_drawn_token_that_is_set_aside_is_found(rule):
    """The same enumeration, with the last token dropped for its own chance: no longer the target's distribution."""
    world = World(2, LENGTH, 0)
    found, _ = distribution(world, rule, "memory", drop=True)

    assert np.abs(found - world.distribution()).sum() / 2 > 1e-3
