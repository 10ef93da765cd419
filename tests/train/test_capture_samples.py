"""Samples captured during generation equal those of a forward, and cached samples are not computed again."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from spec_train.data.answers import Answerer, AnswerOptions, read_answers
from spec_train.data.cache import SampleCache
from spec_train.data.dataset import Dataset
from spec_train.data.samples import Teacher, TextSample

from spec_core.errors import UsageError
from tests.support.small_heads import tiny_target
from tests.support.small_models import tiny_hybrid

SOURCES = (2, 1, 4)
"""Including the state after the final norm."""
HOW = AnswerOptions(9, (0.0, 0.8), seed=3)


def prompts(count: int, same: int = 6) -> list[tuple[int, ...]]:
    """Prompts with a common prefix, so that slots are reused."""
    rng = np.random.default_rng(0)
    return [(*range(3, 3 + same), *rng.integers(3, 290, 2 + i % 5).tolist()) for i in range(count)]


@pytest.fixture
def answerer(tmp_path) -> Answerer:
    return Answerer(Teacher(tiny_target(), SOURCES), SampleCache(tmp_path / "states", 1 << 30))


@pytest.mark.parametrize("hybrid", [False, True], ids=["dense", "hybrid"])
def test_captured_samples_equal_those_of_a_forward(hybrid, tmp_path):
    """Equal bits in features; rows of reused prefixes included."""
    from spec_core import load

    target = load(tiny_hybrid()) if hybrid else tiny_target()
    answerer = Answerer(Teacher(target, SOURCES), SampleCache(tmp_path / "states", 1 << 30))
    for row in answerer.answers(tmp_path / "a.jsonl", prompts(40), HOW):
        captured, asked = answerer.cache.get(row), answerer.teacher.sample(row)

        assert torch.equal(captured.tokens, asked.tokens)
        assert torch.equal(captured.features, asked.features)
        assert captured.start == asked.start == row.start
        assert torch.equal(captured.top_k.p.sort().values, asked.top_k.p.sort().values)
        assert torch.equal(captured.top_k.ids.sort().values, asked.top_k.ids.sort().values)


def test_answers_are_in_the_order_of_their_prompts(answerer, tmp_path):
    asked = prompts(40)

    rows = answerer.answers(tmp_path / "a.jsonl", asked, HOW)

    assert [row.tokens[: row.start] for row in rows] == asked
    assert len({len(row.tokens) - row.start for row in rows}) == 1


def test_saved_answers_are_not_generated_again(answerer, tmp_path):
    path, done = tmp_path / "a.jsonl", []
    first = answerer.answers(path, prompts(20)[:12], HOW)
    path.write_text(path.read_text() + '{"start": 8, "tok')

    rows = answerer.answers(path, prompts(20), HOW, on_answer=done.append)

    assert rows[:12] == first
    assert done == list(range(13, 21))
    assert read_answers(path) == rows


def test_resumed_answers_are_those_of_an_undisturbed_run(answerer, tmp_path):
    """The temperature of an answer depends on its index only."""
    whole = answerer.answers(tmp_path / "a.jsonl", prompts(20), HOW)
    answerer.answers(tmp_path / "b.jsonl", prompts(20)[:7], HOW)

    assert answerer.answers(tmp_path / "b.jsonl", prompts(20), HOW) == whole


def test_one_of_several_temperatures_is_drawn_for_each_answer():
    drawn = [HOW.sampling(i).temperature for i in range(40)]

    assert set(drawn) == {0.0, 0.8}
    assert drawn == [HOW.sampling(i).temperature for i in range(40)]


def test_no_answer_is_started_after_the_time_limit(answerer, tmp_path):
    assert answerer.answers(tmp_path / "a.jsonl", prompts(5), HOW, seconds=-1.0) == []


def test_answers_that_were_started_are_finished(answerer, tmp_path, monkeypatch):
    """The clock jumps past the limit after the first prompts."""
    now = iter([0.0] * 4)
    monkeypatch.setattr(time, "monotonic", lambda: next(now, 100.0))

    rows = answerer.answers(tmp_path / "a.jsonl", prompts(20), HOW, seconds=50.0)

    assert len(rows) == 3
    assert all(len(row.tokens) - row.start == HOW.max_tokens - 1 for row in rows)


def test_a_file_of_answers_to_other_prompts_is_refused(answerer, tmp_path):
    answerer.answers(tmp_path / "a.jsonl", prompts(4), HOW)

    with pytest.raises(UsageError, match="answers to other prompts"):
        answerer.answers(tmp_path / "a.jsonl", prompts(4, same=5), HOW)


def count_requests(teacher: Teacher, monkeypatch) -> list[TextSample]:
    asked = []
    plain = Teacher.sample
    monkeypatch.setattr(Teacher, "sample", lambda self, row: asked.append(row) or plain(self, row))
    return asked


def test_a_cached_sample_is_not_computed(answerer, tmp_path, monkeypatch):
    rows = answerer.answers(tmp_path / "a.jsonl", prompts(6), HOW)
    asked = count_requests(answerer.teacher, monkeypatch)
    other = TextSample(tuple(range(20, 40)))
    samples = Dataset(answerer.teacher, [*rows, other], 0, answerer.cache)

    for _ in range(2):
        assert len([*samples]) == 7
    assert asked == [other]


def test_a_sample_that_is_not_stored_or_damaged_is_computed_again(tmp_path, monkeypatch):
    teacher, row = Teacher(tiny_target(), SOURCES), TextSample(tuple(range(20, 40)))
    asked = count_requests(teacher, monkeypatch)
    small = SampleCache(tmp_path / "small", teacher.sample(row).bytes)
    small.put(row, teacher.sample(row))
    small.put(TextSample(row.tokens, 3), teacher.sample(row))
    (kept,) = (tmp_path / "small").iterdir()
    asked.clear()
    kept.write_bytes(kept.read_bytes()[:-100])

    assert small.get(TextSample(row.tokens, 3)) is None
    assert torch.equal(Dataset(teacher, [row], 0, small)[0].features, teacher.sample(row).features)
    assert len(asked) == 2
    assert SampleCache(tmp_path / "small", 10_000).free < 10_000
