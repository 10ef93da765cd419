"""``spec compare`` with contenders on different engines: each is held to plain decoding on its own model."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run

from tests.support.hugging_face import directory


def test_contenders_on_two_engines_are_compared_within_each(capsys):
    pytest.importorskip("transformers", "5.20")
    models = f"zoo:pico,transformers:{directory('zoo:pico')}"
    words = ["compare", "-m", "zoo:pico", "--method", "ngram", "--sweep", f"model={models}", "--limit", "1", "-n", "8"]

    assert run([*words, "--threads", "1", "--repeats", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {row["contender"] for row in found["rows"]}
    assert sum(name.startswith("plain") for name in names) == 2
    assert sum(name.startswith("ngram model=") for name in names) == 2
    assert {row["identical"] == row["prompts"] for row in found["rows"]} == {True}
