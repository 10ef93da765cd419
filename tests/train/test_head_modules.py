"""What the heads in training see, and what they are marked by."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from spec_targets.heads.head import Head
from spec_train import begin
from spec_train.eagle3 import Eagle3
from spec_train.exam import Exam, Tally
from spec_train.lessons import Lesson, Row, Teacher
from spec_train.shape import Shape
from spec_train.weights import radians

from tests.small_heads import SOURCES, tiny_target, trained


def pupil(kind, target, **more):
    given = trained(kind, target, **more)
    return begin.begun(given.shape, given.d2t, target, 0, 3)


def lesson(target, kind, length=20, start=0):
    tokens = tuple(np.random.default_rng(1).integers(0, 299, length).tolist())
    return Teacher(target, SOURCES[kind]).lesson(Row(tokens, start))


def test_a_shape_has_the_names_of_the_description():
    names = {f.name for f in attrs.fields(Shape)} - {"sources"}

    assert names <= {f.name for f in attrs.fields(Head)}


def test_unrolled_training_is_drafting():
    """Row p of step j is what a chain gives that begins at p and is fed the same tokens."""
    target = tiny_target()
    given = trained("eagle3", target)
    head = Eagle3(given.shape, given.weights, radians(given.shape))
    embedded, fused = torch.randn(12, 32), torch.randn(12, 32)
    whole = head.unroll(embedded, fused, 4)

    for row in (0, 3, 8):
        chain = head.unroll(embedded[: row + 4], fused[: row + 4], 4)
        for j in range(4):
            assert torch.allclose(chain[j][-1], whole[j][row], atol=1e-5)


def drafted(kind, learner, given, before):
    """Outputs for the token at position 10, the last that is known."""
    if kind == "dflash":
        return learner._hidden(given, torch.tensor([10]))
    return learner.head.unroll(learner.lent.embed(given.tokens[1:11]), learner.head.fused(before), 1)[0]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_draft_knows_nothing_of_what_comes_after_it(kind):
    """Tokens and hidden states after the last known token change no draft."""
    target = tiny_target()
    learner, given = pupil(kind, target), lesson(target, kind)
    changed = Lesson(given.tokens.clone(), given.features.clone(), None, 0)
    changed.features[10:] += 5
    before = given.features[:10]

    drafts = [drafted(kind, learner, x, before) for x in (given, changed)]
    assert torch.equal(*drafts)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_blocks_and_rows_do_not_see_each_other(kind):
    """What is accepted at a position is the same, whatever else is looked at."""
    target = tiny_target()
    learner, given = pupil(kind, target), lesson(target, kind, 24)
    short = Lesson(given.tokens[:16], given.features[:16], None, 0)

    assert learner.accepted(given)[:10] == learner.accepted(short)[:10]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
@pytest.mark.parametrize("rows", [None, 100])
def test_learning_one_text_by_heart_ends_in_drafts_that_are_accepted(kind, rows):
    """Loss, gradients and marks belong together: told what comes next, a head drafts it."""
    target = tiny_target()
    learner = pupil(kind, target, rows=rows)
    known = torch.arange(290) if rows is None else learner.lent.d2t
    tokens = known[torch.from_numpy(np.random.default_rng(0).integers(0, len(known), 24))]
    seen = Teacher(target, SOURCES[kind]).lesson(Row(tuple(tokens.tolist())))
    told = 30.0 * torch.nn.functional.one_hot(tokens.roll(-1), 300).float()
    given = Lesson(tokens, seen.features, told, 4)
    exam, optimizer = Exam([given]), torch.optim.Adam(learner.head.parameters(), 1e-2)
    first = exam.mark(learner).tokens_per_step
    for i in range(80):
        learner.loss(given, np.random.default_rng(i)).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert first < 1.5
    assert exam.mark(learner).tokens_per_step > 2.5


def test_the_walk_counts_as_a_run_does():
    """Ten tokens, three drafts a step: all, none and two accepted; the last token is never drafted."""
    tally = Tally(3)
    tally.walk([0, 3, 0, 0, 0, 0, 2, 0, 0, 9], 1, 10)
    marks = tally.marks()

    # at 1: three of three, at 5: none, at 6: two of two that still may be drafted
    assert (tally.steps, tally.tokens) == (3, 8)
    assert marks.tokens_per_step == pytest.approx(8 / 3)
    assert marks.accepted == (2 / 3, 1.0, 1.0)


def test_a_distribution_over_part_of_the_vocabulary_is_not_made_whole():
    """Tokens that cannot be drafted take their share away: rows they dominate hardly teach."""
    target = tiny_target()
    learner, given = pupil("eagle3", target, rows=50), lesson(target, "eagle3")
    law = learner.lent.law(given)

    assert law.shape == (20, 50)
    assert (law.sum(-1) < 1).all()
    assert torch.allclose(law, given.logits.softmax(-1)[:, learner.lent.d2t])
