"""Initialised heads copy before the first training step."""

from __future__ import annotations

import json

import attrs
import pytest
import torch
from spec_train.data.samples import Teacher, TextSample
from spec_train.heads.shape import default_shape
from spec_train.init.dflash_copy import add_copy_layers
from spec_train.init.eagle3_copy import add_copy_head
from spec_train.init.random import new_student
from spec_train.training.evaluation import Evaluation
from spec_zoo import PROMPTS

from spec_core import load
from tests.support.small_heads import SOURCES, tiny_target, train


@pytest.fixture(scope="module")
def teacher():
    return Teacher(load("zoo:pico", threads=1), (2, 5, 7))


def repeat(teacher, text: str, n: int = 50) -> TextSample:
    """The beginning of a text, repeated; the repetition is evaluated."""
    tokens = teacher.target.tokenizer.encode(text)[:n]
    return TextSample((*tokens, *tokens), len(tokens))


def test_an_initialised_eagle3_head_drafts_repeated_text(teacher):
    """It copies what followed an earlier occurrence of the newest token."""
    info = teacher.target.info
    more = {"draft_vocab": info.vocab, "inputs": 3, "sources": (2, 5, 7), "own_output": True}
    shape = default_shape("eagle3", info, 1, None, None, norm_before_residual=True, **more)
    student = new_student(shape, None, teacher.target, 0, 3)
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    evaluation = Evaluation([teacher.sample(repeat(teacher, text)) for text in prompts[::8]])
    before = evaluation.run(student).tokens_per_step
    add_copy_head(student, [teacher.sample(repeat(teacher, text)) for text in prompts[1::3]])

    assert before < 1.1
    assert evaluation.run(student).tokens_per_step > 1.5


def test_an_initialised_dflash_head_drafts_three_tokens_of_repeated_text(teacher):
    """One token further for every attention head; nothing without the initialisation."""
    info, sources = teacher.target.info, (1, 6, 10)
    block = {"qk_norm": True, "block": 8, "mask": 3071, "windows": (0, 0), "causal": (False, False)}
    more = {"draft_vocab": info.vocab, "inputs": 3, "sources": sources, **block}
    student = new_student(default_shape("dflash", info, 2, None, None, **more), None, teacher.target, 0, 3)
    teacher_of_head = Teacher(teacher.target, sources)
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    evaluation = Evaluation([teacher_of_head.sample(repeat(teacher_of_head, text)) for text in prompts[::8]])
    before = evaluation.run(student).tokens_per_step
    add_copy_layers(student, [teacher_of_head.sample(repeat(teacher_of_head, text)) for text in prompts[1::3]])
    after = evaluation.run(student)

    assert before < 1.1
    assert after.tokens_per_step > 1.15
    assert min(after.accepted[:3]) > 0.1


def test_a_head_that_cannot_copy_is_left_alone():
    """No rotary frequency is low enough to match tokens over a distance."""
    target = tiny_target()
    trained_head = train("eagle3", target)
    shape = attrs.evolve(trained_head.shape, rope_base=10.0)
    student = new_student(shape, None, target, 0, 3)
    before = {name: t.clone() for name, t in student.head.tensors_by_name().items()}
    add_copy_head(student, [Teacher(target, SOURCES["eagle3"]).sample(TextSample(tuple(range(20))))])

    assert all(torch.equal(before[name], t) for name, t in student.head.tensors_by_name().items())
