"""A draft with a false claim about its proposal is refused before it reaches a rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import World, distance
from sampler import near, text_distribution
from spec_rules import block, k_seq, rejection, traversal

from spec_core import Compat, Draft, Run, hookimpl
from spec_core.contract.checks import check_draft
from spec_core.testing import ToyTarget
from spec_core.toolkit import draft_distribution
from tests.rules.test_runs import DREW, PROMPT, TINY, N, count_texts, p_value

VOCAB, LENGTH = 3, 3
LIES = {
    "deterministic-with-softmax": ("deterministic", lambda rows: rows),
    "deterministic-with-nan": ("deterministic", lambda rows: rows * np.nan),
    "unknown-with-softmax": ("unknown", lambda rows: rows),
    "rows-of-nan": ("sampled", lambda rows: rows * np.nan),
    "rows-below-zero": ("sampled", lambda rows: rows * [2, 1, -1]),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("rule", [rejection, block, traversal, k_seq], ids=lambda rule: rule.__name__)
def test_a_false_claim_is_refused_or_bends_nothing(rule, lie):
    """The likeliest tokens of q, with rows that they were not drawn from; every answer of chance is followed."""
    world = World(VOCAB, LENGTH, 6)
    ids = [0, 1]
    rows = np.array([world.q[()], world.q[(ids[0],)]])

    assert propose(ids, rows, lie) is None or bias_of(world, rule, propose(ids, rows, lie)) < 1e-12


@pytest.mark.parametrize("rule", [rejection, block, traversal, k_seq], ids=lambda rule: rule.__name__)
def test_a_true_claim_is_taken_and_bends_nothing(rule):
    """The same tokens, declared as deterministic."""
    assert bias_of(World(VOCAB, LENGTH, 6), rule, Draft([0, 1])) < 1e-12


def propose(ids: list[int], rows: np.ndarray, lie: str) -> Draft | None:
    """The draft if the boundary lets it pass."""
    proposal, claim = LIES[lie]
    try:
        draft = Draft(ids, proposal=proposal, probs=torch.from_numpy(claim(rows)))
        check_draft(draft, len(ids), len(ids), VOCAB, trees=False)
    except ValueError:
        return None
    return draft


def bias_of(world: World, rule, draft: Draft) -> float:
    """Total variation of the text's distribution, with the rows as a rule reads them; NaN counts as everything."""
    claimed = [draft_distribution(draft, j, VOCAB) for j in range(len(draft))]
    return float(np.nan_to_num(distance(world, rule.decisions, [(draft, claimed, 1.0)]), nan=1.0))


class Liar:
    """Drafts the likeliest tokens, declared as such, with the softmax that they maximise."""

    def __init__(self, q: np.ndarray) -> None:
        self.q = q

    @hookimpl
    def compat(self):
        return Compat(drafts={"deterministic"})

    @hookimpl
    def draft(self, step):
        for seq, _ in step.undrafted:
            row = self.q[seq.tokens[-1]]
            step.propose(seq, Draft([int(row.argmax())], proposal="deterministic", probs=torch.from_numpy(row[None])))


@pytest.mark.parametrize("rule", DREW)
def test_a_liar_is_named_and_its_texts_keep_their_distribution(rule):
    target = ToyTarget(**TINY)
    distribution = text_distribution(target, PROMPT, N)
    run = Run(target, [("liar", Liar(near(target)))], rule=rule, on_error="isolate", max_sequences=32)

    assert p_value(count_texts(run, distribution), distribution) > 1e-3
    assert "ValueError: probs belong to the proposal 'sampled'" in run.stats.switched_off["liar"]
