"""Heads copy before they have learnt anything."""

from __future__ import annotations

import json

import attrs
import pytest
import torch
from spec_train import begin, hops, induction
from spec_train.exam import Exam
from spec_train.lessons import Row, Teacher
from spec_train.shape import sized
from spec_zoo import PROMPTS

from spec_core import load
from tests.small_heads import SOURCES, tiny_target, trained


@pytest.fixture(scope="module")
def teacher():
    return Teacher(load("zoo:pico", threads=1), (2, 5, 7))


def again(teacher, text: str, n: int = 50) -> Row:
    """The beginning of a text that comes a second time; that is what is looked at."""
    tokens = teacher.target.tokenizer.encode(text)[:n]
    return Row((*tokens, *tokens), len(tokens))


def test_a_text_that_comes_again_is_drafted_from_the_start(teacher):
    """What followed an earlier occurrence of the newest token: without a step of training."""
    info = teacher.target.info
    more = {"draft_vocab": info.vocab, "inputs": 3, "sources": (2, 5, 7), "own_output": True}
    shape = sized("eagle3", info, 1, None, None, norm_before_residual=True, **more)
    pupil = begin.begun(shape, None, teacher.target, 0, 3)
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    exam = Exam([teacher.lesson(again(teacher, text)) for text in prompts[::8]])
    before = exam.mark(pupil).tokens_per_step
    induction.start(pupil, [teacher.lesson(again(teacher, text)) for text in prompts[1::3]])

    assert before < 1.1
    assert exam.mark(pupil).tokens_per_step > 1.5


def test_a_block_of_a_text_that_comes_again_is_drafted_three_tokens_ahead_from_the_start(teacher):
    """One token further for every attention head; nothing without the start."""
    info, sources = teacher.target.info, (1, 6, 10)
    block = {"qk_norm": True, "block": 8, "mask": 3071, "windows": (0, 0), "causal": (False, False)}
    more = {"draft_vocab": info.vocab, "inputs": 3, "sources": sources, **block}
    pupil = begin.begun(sized("dflash", info, 2, None, None, **more), None, teacher.target, 0, 3)
    asked = Teacher(teacher.target, sources)
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    exam = Exam([asked.lesson(again(asked, text)) for text in prompts[::8]])
    before = exam.mark(pupil).tokens_per_step
    hops.start(pupil, [asked.lesson(again(asked, text)) for text in prompts[1::3]])
    after = exam.mark(pupil)

    assert before < 1.1
    assert after.tokens_per_step > 1.15
    assert min(after.accepted[:3]) > 0.1


def test_a_head_that_is_too_narrow_to_copy_is_left_alone():
    """No dimension turns slowly enough to tell a token from far away."""
    target = tiny_target()
    given = trained("eagle3", target)
    shape = attrs.evolve(given.shape, rope_base=10.0)
    pupil = begin.begun(shape, None, target, 0, 3)
    before = {name: t.clone() for name, t in pupil.head.named().items()}
    induction.start(pupil, [Teacher(target, SOURCES["eagle3"]).lesson(Row(tuple(range(20))))])

    assert all(torch.equal(before[name], t) for name, t in pupil.head.named().items())
