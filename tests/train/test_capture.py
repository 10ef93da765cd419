"""What is taken down while the target answers is what it says when asked again; what is kept is not asked again."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from spec_train.answers import Asking, Desk, held
from spec_train.lessons import Lessons, Row, Teacher
from spec_train.shelf import Shelf

from spec_core.errors import UsageError
from tests.small_heads import tiny_target
from tests.small_models import tiny_hybrid

SOURCES = (2, 1, 4)
"""With the state after the final norm."""
HOW = Asking(9, (0.0, 0.8), seed=3)


def prompts(count: int, same: int = 6) -> list[tuple[int, ...]]:
    """Prompts that begin alike, so that slots are continued on."""
    rng = np.random.default_rng(0)
    return [(*range(3, 3 + same), *rng.integers(3, 290, 2 + i % 5).tolist()) for i in range(count)]


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(Teacher(tiny_target(), SOURCES), Shelf(tmp_path / "states", 1 << 30))


@pytest.mark.parametrize("hybrid", [False, True], ids=["dense", "hybrid"])
def test_what_is_heard_is_what_a_forward_says(hybrid, tmp_path):
    """Bit for bit in features; rows of prompts that were reused included."""
    from spec_core import load

    target = load(tiny_hybrid()) if hybrid else tiny_target()
    desk = Desk(Teacher(target, SOURCES), Shelf(tmp_path / "states", 1 << 30))
    for row in desk.kept(tmp_path / "a.jsonl", prompts(40), HOW):
        heard, asked = desk.shelf.get(row), desk.teacher.lesson(row)

        assert torch.equal(heard.tokens, asked.tokens)
        assert torch.equal(heard.features, asked.features)
        assert heard.start == asked.start == row.start
        assert torch.equal(heard.likely.p.sort().values, asked.likely.p.sort().values)
        assert torch.equal(heard.likely.ids.sort().values, asked.likely.ids.sort().values)


def test_answers_come_in_the_order_of_their_prompts_whenever_they_end(desk, tmp_path):
    asked = prompts(40)

    rows = desk.kept(tmp_path / "a.jsonl", asked, HOW)

    assert [row.tokens[: row.start] for row in rows] == asked
    assert len({len(row.tokens) - row.start for row in rows}) == 1


def test_answers_that_are_there_are_not_written_again(desk, tmp_path):
    path, done = tmp_path / "a.jsonl", []
    first = desk.kept(path, prompts(20)[:12], HOW)
    path.write_text(path.read_text() + '{"start": 8, "tok')

    rows = desk.kept(path, prompts(20), HOW, told=done.append)

    assert rows[:12] == first
    assert done == list(range(13, 21))
    assert held(path) == rows


def test_the_same_prompts_get_the_same_answers_in_one_go_or_two(desk, tmp_path):
    """The temperature of an answer goes by its number, not by when it is written."""
    whole = desk.kept(tmp_path / "a.jsonl", prompts(20), HOW)
    desk.kept(tmp_path / "b.jsonl", prompts(20)[:7], HOW)

    assert desk.kept(tmp_path / "b.jsonl", prompts(20), HOW) == whole


def test_of_several_temperatures_each_answer_has_one():
    drawn = [HOW.sampling(i).temperature for i in range(40)]

    assert set(drawn) == {0.0, 0.8}
    assert drawn == [HOW.sampling(i).temperature for i in range(40)]


def test_when_the_time_is_over_no_answer_is_begun(desk, tmp_path):
    assert desk.kept(tmp_path / "a.jsonl", prompts(5), HOW, seconds=-1.0) == []


def test_those_that_were_begun_are_ended(desk, tmp_path, monkeypatch):
    """A clock that jumps after the first prompts were taken."""
    now = iter([0.0] * 4)
    monkeypatch.setattr(time, "monotonic", lambda: next(now, 100.0))

    rows = desk.kept(tmp_path / "a.jsonl", prompts(20), HOW, seconds=50.0)

    assert len(rows) == 3
    assert all(len(row.tokens) - row.start == HOW.n - 1 for row in rows)


def test_a_file_of_answers_to_other_prompts_is_refused(desk, tmp_path):
    desk.kept(tmp_path / "a.jsonl", prompts(4), HOW)

    with pytest.raises(UsageError, match="answers to other prompts"):
        desk.kept(tmp_path / "a.jsonl", prompts(4, same=5), HOW)


def counted(teacher: Teacher, monkeypatch) -> list[Row]:
    asked = []
    plain = Teacher.lesson
    monkeypatch.setattr(Teacher, "lesson", lambda self, row: asked.append(row) or plain(self, row))
    return asked


def test_a_lesson_on_the_shelf_is_not_asked_for(desk, tmp_path, monkeypatch):
    rows = desk.kept(tmp_path / "a.jsonl", prompts(6), HOW)
    asked = counted(desk.teacher, monkeypatch)
    other = Row(tuple(range(20, 40)))
    lessons = Lessons(desk.teacher, [*rows, other], 0, desk.shelf)

    for _ in range(2):
        assert len([*lessons]) == 7
    assert asked == [other]


def test_a_shelf_that_is_full_or_damaged_costs_a_forward_and_no_more(tmp_path, monkeypatch):
    teacher, row = Teacher(tiny_target(), SOURCES), Row(tuple(range(20, 40)))
    asked = counted(teacher, monkeypatch)
    small = Shelf(tmp_path / "small", teacher.lesson(row).bytes)
    small.put(row, teacher.lesson(row))
    small.put(Row(row.tokens, 3), teacher.lesson(row))
    (kept,) = (tmp_path / "small").iterdir()
    asked.clear()
    kept.write_bytes(kept.read_bytes()[:-100])

    assert small.get(Row(row.tokens, 3)) is None
    assert torch.equal(Lessons(teacher, [row], 0, small)[0].features, teacher.lesson(row).features)
    assert len(asked) == 2
    assert Shelf(tmp_path / "small", 10_000).room < 10_000
