"""Comparisons from Python: the same as the command's, with prompts as values and figures as data frames."""

from __future__ import annotations

import pytest
from spec_compare import compare, read_outcome, to_frame
from spec_compare.python import option_words

from spec_core.errors import UsageError
from tests.compare.test_compare import begin

TEXTS = ["a b c a b", {"prompt": "a b a b", "family": "mine", "id": "x"}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(begin(monkeypatch, tmp_path))
    return tmp_path


def test_prompts_are_a_file_or_values(folder):
    of_file = compare("toy:dense", ["repeat"], "prompts.jsonl", n=4, bounds=False)
    of_values = compare("toy:dense", ["repeat"], TEXTS, n=4, bounds=False)

    assert {row.contender for row in of_file.rows} == {"plain", "repeat"}
    assert [row.prompts for row in of_values.rows if row.family == "all"] == [2, 2]
    assert "mine" in {row.family for row in of_values.rows}


def test_options_are_those_of_the_command(folder):
    outcome = compare("toy:dense", ["repeat"], TEXTS, n=4, bounds=False, sweep=["seed=1,2"], repeats=2)

    assert outcome.header.repeats == 2
    assert {row.contender for row in outcome.rows} == {"plain seed=1", "plain seed=2", "repeat seed=1", "repeat seed=2"}


def test_results_are_written_and_read(folder):
    written = compare("toy:dense", ["repeat"], TEXTS, out="out", n=4, bounds=False)

    assert read_outcome("out").rows == read_outcome(folder / "out").rows == written.rows


def test_frames_have_the_columns_of_the_exports(folder):
    pytest.importorskip("pandas", reason="needs the extra frames")
    outcome = compare("toy:dense", ["repeat"], TEXTS, n=4, bounds=False, sweep=["seed=1,2"])
    frame, texts = to_frame(outcome), to_frame(outcome, texts=True)

    assert len(frame) == len(outcome.rows) and {"speedup", "worst_family", "seed"} <= set(frame.columns)
    assert texts["new_tokens"].tolist() == [4] * 8 and set(texts["seed"]) != {None}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_tokens": 3}, ["--max-tokens", "3"]),
        ({"trace": True}, ["--trace"]),
        ({"bounds": False}, ["--no-bounds"]),
        ({"sweep": ["a=1", "b=2"]}, ["--sweep", "a=1", "--sweep", "b=2"]),
        ({"limit": None}, []),
    ],
)
def test_keywords_become_options(options, expected):
    assert list(option_words(options)) == expected


@pytest.mark.parametrize("options", [{"nonsense": 1}, {"wide": True}, {"report": "x.html"}, {"repeats": "many"}])
def test_wrong_options_are_refused_without_a_traceback(folder, options):
    with pytest.raises(UsageError):
        compare("toy:dense", ["repeat"], TEXTS, **options)
