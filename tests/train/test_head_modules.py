"""What the heads in training see, and what they are marked by."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from spec_targets.heads.head import Head
from spec_train import begin, pupils
from spec_train.eagle3 import Eagle3
from spec_train.exam import Exam, Tally
from spec_train.lessons import Lesson, Likely, Row, Teacher
from spec_train.nats import Nats
from spec_train.pupils import DFlashPupil
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
        return learner._states([given], [torch.tensor([10])])
    return learner.head.unroll(learner.lent.embed(given.tokens[1:11]), learner.head.fused(before), 1)[0]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_draft_knows_nothing_of_what_comes_after_it(kind):
    """Tokens and hidden states after the last known token change no draft."""
    target = tiny_target()
    learner, given = pupil(kind, target), lesson(target, kind)
    changed = Lesson(given.tokens.clone(), given.features.clone(), given.likely, 0)
    changed.features[10:] += 5
    before = given.features[:10]

    drafts = [drafted(kind, learner, x, before) for x in (given, changed)]
    assert torch.equal(*drafts)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_blocks_and_rows_do_not_see_each_other(kind):
    """What is accepted at a position is the same, whatever else is looked at."""
    target = tiny_target()
    learner, given = pupil(kind, target), lesson(target, kind, 24)
    short = Lesson(given.tokens[:16], given.features[:16], given.likely, 0)

    assert learner.accepted(given)[:10] == learner.accepted(short)[:10]


@pytest.mark.slow
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
    given = Lesson(tokens, seen.features, Likely.of(told), 4)
    exam, optimizer = Exam([given]), torch.optim.Adam(learner.head.parameters(), 1e-2)
    first = exam.mark(learner).tokens_per_step
    for i in range(80):
        learner.loss([given], np.random.default_rng(i)).backward()
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
    whole = given.likely[:]
    likely = learner.lent.draftable(whole)
    spread = torch.zeros(20, 50).scatter_add_(1, likely.ids, likely.p)
    wanted = torch.zeros(20, 300).scatter_add_(1, whole.ids, whole.p)[:, learner.lent.d2t]

    assert (spread.sum(-1) < 1).all()
    assert torch.allclose(spread, wanted)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_several_lessons_teach_what_each_of_them_teaches(kind, monkeypatch):
    """Texts side by side, with prompts of different lengths: the loss is the mean over all that is taught."""
    target = tiny_target()
    learner = pupil(kind, target)
    given = [lesson(target, kind, 20, 6), lesson(target, kind, 13), lesson(target, kind, 17, 12)]
    taught = [13, 10, 4] if kind == "eagle3" else None
    monkeypatch.setattr(pupils, "ONE_IN", 1)
    if kind == "dflash":
        monkeypatch.setattr(DFlashPupil, "_anchors", lambda self, x, rng: torch.arange(1, len(x.tokens) - 3))
        taught = [len(x.tokens) - 4 for x in given]
    each = torch.stack([learner.loss([x], np.random.default_rng(0)).detach() for x in given])
    together = learner.loss(given, np.random.default_rng(0)).detach()

    assert float(together) == pytest.approx(float((each * torch.tensor(taught)).sum() / sum(taught)), rel=1e-5)


def test_of_texts_that_are_not_unrolled_the_first_step_is_taught():
    """Two texts, one of them unrolled: the first step counts the rows of both."""
    target = tiny_target()
    learner = pupil("eagle3", target)
    first, second = lesson(target, "eagle3", 20), lesson(target, "eagle3", 15)
    (n1, r1), *ahead = learner._said([first], 3)
    ((n2, r2),) = learner._said([second], 1)
    wanted = ((n1 + n2) / (r1 + r2) + sum(0.8**j * n / r for j, (n, r) in enumerate(ahead, 1))) / (1 + 0.8 + 0.64)

    assert learner.loss([first, second], np.random.default_rng(0)).item() == pytest.approx(wanted.item(), rel=1e-5)
    assert r2 == 14


def test_the_slope_that_is_made_on_the_way_is_that_of_the_cross_entropy():
    torch.manual_seed(0)
    hidden, output = torch.randn(700, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    ids = torch.stack([torch.randperm(30)[:5] for _ in range(700)])
    p, weight = torch.rand(700, 5) / 5, torch.rand(700)
    likely = torch.zeros(700, 30).scatter_add_(1, ids, p)
    plain = (weight * torch.nn.functional.cross_entropy(hidden @ output.T, likely, reduction="none")).sum()
    wanted = torch.autograd.grad(plain, (hidden, output))
    ours = Nats.apply(hidden, output, ids, p, weight)

    assert ours.item() == pytest.approx(plain.item(), rel=1e-5)
    for found, slope in zip(torch.autograd.grad(ours, (hidden, output)), wanted, strict=True):
        assert torch.allclose(found, slope, atol=1e-4)
