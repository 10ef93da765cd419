"""Equality by type: exact equality inside a type, and of plain decoding between types."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run_command
from spec_compare.records.reading import read_results

QUICK = ["--limit", "1", "--threads", "1", "--no-bounds", "-n", "24", "--method", "ngram"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison of the zoo's model in two dtypes."""
    out = tmp_path_factory.mktemp("types") / "out"
    words = ["compare", "-m", "zoo:pico", *QUICK, "-o", "kernels=reference", "--dtypes", "float32,bfloat16"]
    assert run_command([*words, "--out", str(out)]) == 0
    return out


def texts_of(folder, contender):
    """{prompt: tokens} of a contender."""
    return {r.prompt: r.tokens for lap in read_results(folder).laps for r in lap.records if r.contender == contender}


@pytest.mark.release
def test_every_contender_is_judged_in_its_own_type(folder):
    body = json.loads((folder / "summary.json").read_text())
    rows = {(row["contender"], row["dtype"]): row for row in body["equality"]}
    exact, rounded = (texts_of(folder, f"plain dtype={name}") for name in ("float32", "bfloat16"))

    assert len(rows) == 4 and {dtype for _, dtype in rows} == {"float32", "bfloat16"}
    assert all(row["identical"] == row["prompts"] for row in rows.values())
    assert rows["plain dtype=float32", "float32"]["like_first"] == 4
    assert rows["plain dtype=bfloat16", "bfloat16"]["like_first"] == sum(exact[p] == rounded[p] for p in exact)
    assert all((row["like_first"] is None) == name.startswith("ngram") for (name, _), row in rows.items())


def test_one_type_has_no_such_table(capsys):
    assert run_command(["compare", "-m", "zoo:pico", *QUICK, "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["equality"] == []


def test_types_of_the_cache_count_too_and_the_terminal_has_the_table(capsys):
    assert run_command(["compare", "-m", "zoo:pico", *QUICK, "--sweep", "cache_dtype=float32,q8"]) == 0
    text = capsys.readouterr().out.split("equality by type")[1]

    assert "q8" in text and "as first" in text and text.count("4 of 4") == 4


def test_an_unknown_type_is_refused(capsys):
    assert run_command(["compare", "-m", "zoo:pico", *QUICK, "--dtypes", "float32,float7"]) == 2

    assert "float7" in capsys.readouterr().err
