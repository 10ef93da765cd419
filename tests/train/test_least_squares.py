"""The least-squares initialisation of an eagle3 head drafts before the first training step."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from spec_train.data.samples import Teacher, TextSample
from spec_train.heads.shape import default_shape
from spec_train.init import least_squares
from spec_train.init.random import new_student
from spec_train.init.regression import scaled_ridge
from spec_train.training.evaluation import Evaluation
from spec_zoo import PROMPTS

from spec_core import load

SOURCES = {"with the final state": (1, 6, 10), "without it": (2, 5, 7)}


@pytest.fixture(scope="module", params=SOURCES)
def read(request):
    """A teacher, and samples of held-out prompts: some to fit to, others to evaluate on."""
    teacher = Teacher(load("zoo:pico", threads=1), SOURCES[request.param])
    texts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    samples = [teacher.sample(TextSample(tuple(teacher.target.tokenizer.encode(text)[:300]), 20)) for text in texts]
    return teacher, [x for i, x in enumerate(samples) if i % 4], samples[::4]


def untrained_student(teacher, **more):
    info = teacher.target.info
    sizes = {"draft_vocab": info.vocab, "inputs": 3, "sources": tuple(teacher.sources), "own_output": True}
    shape = default_shape("eagle3", info, 1, None, None, **sizes, **({"norm_before_residual": True} | more))
    return new_student(shape, None, teacher.target, 0, 2)


def loss(student, samples) -> float:
    return float(student.loss(samples, np.random.default_rng(0)).detach())


@pytest.mark.repeats(1)
@pytest.mark.slow
def test_fitting_raises_acceptance_and_lowers_the_loss_on_other_texts_and_calibration_changes_no_draft(read):
    teacher, samples, others = read
    student, evaluation, tuning = (
        untrained_student(teacher),
        Evaluation(others),
        samples[: least_squares.TUNING_SAMPLES],
    )
    before, lost = evaluation.run(student).accepted[0], loss(student, others)
    least_squares.fit_student(student, samples, teacher.final_states(samples))
    fitted, uncalibrated = evaluation.run(student), loss(student, tuning)
    least_squares.calibrate_norm(student, samples)

    assert evaluation.run(student) == fitted
    assert loss(student, tuning) <= uncalibrated
    assert fitted.accepted[0] > before + 0.05
    assert loss(student, others) < lost - 3


def test_the_final_states_are_the_input_of_the_output_matrix(read):
    """They are computed if the head does not read them."""
    teacher, samples, _ = read
    output = teacher.target.tensor("output.weight").float()
    logits = teacher.final_states(samples[:1])[0].float() @ output.T
    top_k = samples[0].top_k

    assert (logits[25:].argmax(-1)[:, None] == top_k.ids[25:]).any(-1).all()


@pytest.mark.parametrize("more", [{"norm_before_residual": False}], ids=["unnormed residual"])
def test_a_head_of_unsuitable_sizes_is_left_alone(read, more):
    teacher, samples, _ = read
    student = untrained_student(teacher, **more)
    before = student.head.tensors_by_name()
    least_squares.fit_student(student, samples, teacher.final_states(samples))

    assert all(torch.equal(before[name], t) for name, t in student.head.tensors_by_name().items())


def test_scaled_ridge_does_not_depend_on_the_scale_of_a_column():
    torch.manual_seed(0)
    x, matrix = torch.randn(500, 6), torch.randn(3, 6)
    scale = torch.tensor([1e-3, 1.0, 1.0, 30.0, 1e4, 1.0])
    weights = scaled_ridge(x * scale, x @ matrix.T)

    assert torch.allclose(weights * scale, matrix, rtol=0.02, atol=0.02)
