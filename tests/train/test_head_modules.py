"""Attention of heads in training, their losses, and their evaluation."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from spec_targets.architectures.heads.head import Head
from spec_train.data.samples import Sample, Teacher, TextSample, TopK
from spec_train.heads import eagle3_student
from spec_train.heads.cross_entropy import CrossEntropy
from spec_train.heads.dflash_student import DFlashStudent
from spec_train.heads.eagle3 import Eagle3
from spec_train.heads.module import rope_frequencies
from spec_train.heads.shape import Shape
from spec_train.init.random import new_student
from spec_train.training.evaluation import Counts, Evaluation

from tests.support.small_heads import SOURCES, tiny_target, train


def untrained_student(kind, target, **more):
    trained_head = train(kind, target, **more)
    return new_student(trained_head.shape, trained_head.d2t, target, 0, 3)


def sample(target, kind, length=20, start=0):
    tokens = tuple(np.random.default_rng(1).integers(0, 299, length).tolist())
    return Teacher(target, SOURCES[kind]).sample(TextSample(tokens, start))


def test_a_shape_has_the_names_of_the_description():
    names = {f.name for f in attrs.fields(Shape)} - {"sources"}

    assert names <= {f.name for f in attrs.fields(Head)}


def test_unrolled_training_is_drafting():
    """Row p of step j equals a chain that starts at p with the same tokens."""
    target = tiny_target()
    trained_head = train("eagle3", target)
    head = Eagle3(trained_head.shape, trained_head.weights, rope_frequencies(trained_head.shape))
    embedded, fused = torch.randn(12, 32), torch.randn(12, 32)
    whole = head.unroll(embedded, fused, 4)

    for row in (0, 3, 8):
        chain = head.unroll(embedded[: row + 4], fused[: row + 4], 4)
        for j in range(4):
            assert torch.allclose(chain[j][-1], whole[j][row], atol=1e-5)


def draft_outputs(kind, student, text_sample, before):
    """Outputs for the token at position 10, the last that is known."""
    if kind == "dflash":
        return student.states([text_sample], [torch.tensor([10])])
    return student.head.unroll(student.vocab.embed(text_sample.tokens[1:11]), student.head.fuse(before), 1)[0]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_draft_does_not_depend_on_later_positions(kind):
    """Tokens and hidden states after the last known token change no draft."""
    target = tiny_target()
    student, text_sample = untrained_student(kind, target), sample(target, kind)
    changed = Sample(text_sample.tokens.clone(), text_sample.features.clone(), text_sample.top_k, 0)
    changed.features[10:] += 5
    before = text_sample.features[:10]

    drafts = [draft_outputs(kind, student, x, before) for x in (text_sample, changed)]
    assert torch.equal(*drafts)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_blocks_and_rows_do_not_attend_to_each_other(kind):
    """The accepted length at a position does not depend on the positions that are evaluated with it."""
    target = tiny_target()
    student, text_sample = untrained_student(kind, target), sample(target, kind, 24)
    short = Sample(text_sample.tokens[:16], text_sample.features[:16], text_sample.top_k, 0)

    assert student.accepted_counts(text_sample)[:10] == student.accepted_counts(short)[:10]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
@pytest.mark.parametrize("rows", [None, 100])
def test_a_head_overfitted_to_one_text_drafts_it(kind, rows):
    """Loss, gradients and evaluation agree."""
    target = tiny_target()
    student = untrained_student(kind, target, rows=rows)
    known = torch.arange(290) if rows is None else student.vocab.d2t
    tokens = known[torch.from_numpy(np.random.default_rng(0).integers(0, len(known), 24))]
    seen = Teacher(target, SOURCES[kind]).sample(TextSample(tuple(tokens.tolist())))
    logits = 30.0 * torch.nn.functional.one_hot(tokens.roll(-1), 300).float()
    text_sample = Sample(tokens, seen.features, TopK.of(logits), 4)
    evaluation, optimizer = Evaluation([text_sample]), torch.optim.Adam(student.head.parameters(), 1e-2)
    first = evaluation.run(student).tokens_per_step
    for i in range(80):
        student.loss([text_sample], np.random.default_rng(i)).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert first < 1.5
    assert evaluation.run(student).tokens_per_step > 2.5


def test_the_evaluation_counts_as_a_run_does():
    """Ten tokens, three drafts a step: all, none and two accepted; the last token is never drafted."""
    counts = Counts(3)
    counts.walk([0, 3, 0, 0, 0, 0, 2, 0, 0, 9], 1, 10)
    result = counts.result()

    # at 1: three of three, at 5: none, at 6: two of two that still may be drafted
    assert (counts.steps, counts.tokens) == (3, 8)
    assert result.tokens_per_step == pytest.approx(8 / 3)
    assert result.accepted == (2 / 3, 1.0, 1.0)


def test_probabilities_over_a_draft_vocabulary_are_not_renormalised():
    """The share of tokens that cannot be drafted is lost, so rows that they dominate have little weight."""
    target = tiny_target()
    student, text_sample = untrained_student("eagle3", target, rows=50), sample(target, "eagle3")
    whole = text_sample.top_k[:]
    top_k = student.vocab.draftable(whole)
    spread = torch.zeros(20, 50).scatter_add_(1, top_k.ids, top_k.p)
    expected = torch.zeros(20, 300).scatter_add_(1, whole.ids, whole.p)[:, student.vocab.d2t]

    assert (spread.sum(-1) < 1).all()
    assert torch.allclose(spread, expected)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_the_loss_of_several_samples_is_the_mean_over_their_rows(kind, monkeypatch):
    """Packed samples with prompts of different lengths: the mean over all trained rows."""
    target = tiny_target()
    student = untrained_student(kind, target)
    samples = [sample(target, kind, 20, 6), sample(target, kind, 13), sample(target, kind, 17, 12)]
    trained_rows = [13, 10, 4] if kind == "eagle3" else None
    monkeypatch.setattr(eagle3_student, "UNROLL_ONE_IN", 1)
    if kind == "dflash":
        monkeypatch.setattr(DFlashStudent, "_anchors", lambda self, x, rng: torch.arange(1, len(x.tokens) - 3))
        trained_rows = [len(x.tokens) - 4 for x in samples]
    each = torch.stack([student.loss([x], np.random.default_rng(0)).detach() for x in samples])
    together = student.loss(samples, np.random.default_rng(0)).detach()

    assert float(together) == pytest.approx(
        float((each * torch.tensor(trained_rows)).sum() / sum(trained_rows)), rel=1e-5
    )


def test_texts_that_are_not_unrolled_train_the_first_step():
    """Two texts, one of them unrolled: the first step counts the rows of both."""
    target = tiny_target()
    student = untrained_student("eagle3", target)
    first, second = sample(target, "eagle3", 20), sample(target, "eagle3", 15)
    (n1, r1), *ahead = student.step_losses([first], 3)
    ((n2, r2),) = student.step_losses([second], 1)
    expected = ((n1 + n2) / (r1 + r2) + sum(0.8**j * n / r for j, (n, r) in enumerate(ahead, 1))) / (1 + 0.8 + 0.64)

    assert student.loss([first, second], np.random.default_rng(0)).item() == pytest.approx(expected.item(), rel=1e-5)
    assert r2 == 14


def test_the_gradient_of_the_chunked_cross_entropy_is_exact():
    torch.manual_seed(0)
    hidden, output = torch.randn(700, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    ids = torch.stack([torch.randperm(30)[:5] for _ in range(700)])
    p, weight = torch.rand(700, 5) / 5, torch.rand(700)
    full = torch.zeros(700, 30).scatter_add_(1, ids, p)
    plain = (weight * torch.nn.functional.cross_entropy(hidden @ output.T, full, reduction="none")).sum()
    expected = torch.autograd.grad(plain, (hidden, output))
    ours = CrossEntropy.apply(hidden, output, ids, p, weight)

    assert ours.item() == pytest.approx(plain.item(), rel=1e-5)
    for slope_here, slope in zip(torch.autograd.grad(ours, (hidden, output)), expected, strict=True):
        assert torch.allclose(slope_here, slope, atol=1e-4)
