"""An eagle3 head drafts something before it has learnt anything: what is linear in what it reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from spec_train import begin, fitted
from spec_train.exam import Exam
from spec_train.lessons import Row, Teacher
from spec_train.shape import sized
from spec_train.training import finals
from spec_zoo import PROMPTS

from spec_core import load

SOURCES = {"with the last state": (1, 6, 10), "without it": (2, 5, 7)}


@pytest.fixture(scope="module", params=SOURCES)
def read(request):
    """A teacher, and lessons of held-out prompts: some to fit to, others to try on."""
    teacher = Teacher(load("zoo:pico", threads=1), SOURCES[request.param])
    texts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    lessons = [teacher.lesson(Row(tuple(teacher.target.tokenizer.encode(text)[:300]), 20)) for text in texts]
    return teacher, [x for i, x in enumerate(lessons) if i % 4], lessons[::4]


def begun(teacher, **more):
    info = teacher.target.info
    sizes = {"draft_vocab": info.vocab, "inputs": 3, "sources": tuple(teacher.sources), "own_output": True}
    shape = sized("eagle3", info, 1, None, None, **sizes, **({"norm_before_residual": True} | more))
    return begin.begun(shape, None, teacher.target, 0, 2)


def loss(pupil, lessons) -> float:
    return float(pupil.loss(lessons, np.random.default_rng(0)).detach())


@pytest.mark.slow
def test_texts_that_were_not_fitted_to_are_drafted_better_and_said_with_less_loss(read):
    teacher, given, others = read
    pupil, exam = begun(teacher), Exam(others)
    before, lost = exam.mark(pupil).accepted[0], loss(pupil, others)
    fitted.start(pupil, given, finals(teacher, given))
    fitted.sure(pupil, given)

    assert exam.mark(pupil).accepted[0] > before + 0.05
    assert loss(pupil, others) < lost - 3


@pytest.mark.slow
def test_how_sure_a_head_is_changes_no_draft_and_never_raises_the_loss(read):
    teacher, given, others = read
    pupil = begun(teacher)
    fitted.start(pupil, given, finals(teacher, given))
    before, lost = Exam(others).mark(pupil), loss(pupil, given[: fitted.TRIED])
    fitted.sure(pupil, given)

    assert Exam(others).mark(pupil) == before
    assert loss(pupil, given[: fitted.TRIED]) <= lost


def test_the_last_states_are_what_the_output_matrix_reads(read):
    """Asked for where the head does not read them."""
    teacher, given, _ = read
    output = teacher.target.tensor("output.weight").float()
    logits = finals(teacher, given[:1])[0].float() @ output.T
    told = given[0].likely

    assert (logits[25:].argmax(-1)[:, None] == told.ids[25:]).any(-1).all()


@pytest.mark.parametrize("more", [{"norm_before_residual": False}], ids=["stream begins unnormed"])
def test_a_head_that_it_does_not_fit_is_left_alone(read, more):
    teacher, given, _ = read
    pupil = begun(teacher, **more)
    before = pupil.head.named()
    fitted.start(pupil, given, finals(teacher, given))

    assert all(torch.equal(before[name], t) for name, t in pupil.head.named().items())


def test_least_squares_do_not_mind_the_scale_of_a_column():
    torch.manual_seed(0)
    x, matrix = torch.randn(500, 6), torch.randn(3, 6)
    scale = torch.tensor([1e-3, 1.0, 1.0, 30.0, 1e4, 1.0])
    found = fitted.least_squares(x * scale, x @ matrix.T)

    assert torch.allclose(found * scale, matrix, rtol=0.02, atol=0.02)
