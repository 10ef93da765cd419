"""Methods against each other, and the family that loses."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run_command
from spec_compare.figures.pairs import both_ways, pairs
from spec_compare.figures.summary import rows, worst_first
from spec_compare.measuring.entries import split_name

from tests.compare.test_compare import begin, words
from tests.compare.test_summary import lap

TEN = list(range(10))


def laps(seconds):
    """Laps of a prompt per letter: seconds of plain decoding, of A and of B."""
    return [
        lap(name, prompt, taken, TEN, family=prompt)
        for prompt, times in seconds.items()
        for name, taken in zip(("plain", "A", "B"), times, strict=True)
    ]


SIX = laps({"a": (4, 2, 1), "b": (4, 2, 1), "c": (4, 2, 1), "d": (4, 2, 1), "e": (4, 2, 1), "f": (4, 5, 4)})
BASELINES = {"plain": "plain", "A": "plain", "B": "plain"}


def test_a_pair_is_measured_on_the_same_prompts():
    """Both are fast on the same prompts, so that their ratio varies less than either speedup."""
    (pair,) = pairs(SIX, rows(SIX, {}), BASELINES)
    speedup = next(r for r in rows(SIX, {}) if (r.contender, r.family) == ("B", "all"))

    assert (pair.contender, pair.other, pair.prompts) == ("A", "B", 6)
    assert pair.ratio == pytest.approx(9 / 15)
    assert pair.low <= pair.ratio <= pair.high < 1
    assert pair.high / pair.low < speedup.high / speedup.low


def test_a_pair_is_seen_from_both_sides():
    (pair,) = pairs(SIX, rows(SIX, {}), BASELINES)
    one, other = both_ways([pair])

    assert one == pair
    assert (other.contender, other.ratio) == ("B", pytest.approx(1 / pair.ratio))
    assert other.low == pytest.approx(1 / pair.high) and other.high == pytest.approx(1 / pair.low)


def test_pairs_need_one_plain_decoding_and_the_right_texts():
    assert pairs(SIX, rows(SIX, {}), BASELINES | {"B": "plain dtype=bfloat16"}) == []
    wrong = [one for one in SIX if one.contender != "B"] + [lap("B", p, 1, TEN[:-1], family=p) for p in "abcdef"]
    assert pairs(wrong, rows(wrong, {}), BASELINES) == []


def test_the_family_that_loses_comes_first_and_beside_the_mean():
    listed = rows(SIX, {})
    whole = {r.contender: r for r in listed if r.family == "all"}

    assert worst_first(listed)[0] == "f" and worst_first(listed)[-1] == "all"
    assert (whole["A"].worst_family, whole["A"].worst_speedup) == ("f", pytest.approx(0.8))
    assert whole["A"].speedup > 1, "the mean hides it"
    assert whole["plain"].worst_family is None
    assert all(r.worst_family is None for r in listed if r.family != "all")


def test_one_family_has_no_worst():
    single = [lap(name, p, 1, TEN) for p in "ab" for name in ("plain", "A")]

    assert all(r.worst_family is None for r in rows(single, {}))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("tiny=ngram:draft_max=2", ("tiny", "ngram:draft_max=2")),
        ("two=ngram+suffix", ("two", "ngram+suffix")),
        ("eagle3=head.gguf", (None, "eagle3=head.gguf")),
        ("ngram:draft_max=2", (None, "ngram:draft_max=2")),
        ("ngram+eagle3=ngram", (None, "ngram+eagle3=ngram")),
        ("unknown=head.gguf", (None, "unknown=head.gguf")),
    ],
)
def test_a_contender_may_be_named(spec, expected):
    assert split_name(spec, {"ngram", "suffix", "eagle3"}) == expected


def test_against_a_contender_on_the_terminal(tmp_path, monkeypatch, capsys):
    begin(monkeypatch, tmp_path)
    chosen = ["--method", "repeat", "--method", "mine=repeat:length=2", "--no-bounds", "--out", "out"]
    assert run_command(words(*chosen, "--against", "repeat")) == 0
    text = capsys.readouterr().out

    assert text.startswith("against repeat, all families") and "mine" in text.split("\n\n")[0]
    assert run_command(["compare", "show", "out", "--against", "mine"]) == 0
    assert "× mine" in capsys.readouterr().out
    assert run_command(["compare", "show", "out", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert (pair["contender"], pair["other"]) == ("repeat", "mine")


def test_an_unknown_name_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    begin(monkeypatch, tmp_path)

    assert run_command(words("--method", "repeat", "--method", "mute", "--against", "muet")) == 2
    error = capsys.readouterr().err
    assert "--against 'muet' names no contender" in error and "repeat, mute" in error and "measured" not in error
