"""``spec compare`` with contenders on different engines: each is held to plain decoding on its own model."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run_command
from spec_compare.records.reading import read_results

from tests.engines.models import directory as models
from tests.support.hugging_face import directory


def test_contenders_on_two_engines_are_compared_within_each(capsys):
    """Both models are called pico: names say the engine, and speedups are against plain decoding on the same one."""
    pytest.importorskip("transformers", "5.20")
    words = ["compare", "-m", "zoo:pico", "--method", "ngram", "--target", f"transformers:{directory('zoo:pico')}"]

    assert run_command([*words, "--limit", "1", "-n", "8", "--threads", "1", "--no-bounds", "--exact", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    on = " model=transformers:pico"
    assert {row["contender"] for row in body["rows"]} == {"plain", "ngram", f"plain{on}", f"ngram{on}"}
    assert {row["identical"] == row["prompts"] for row in body["rows"]} == {True}
    assert {row["speedup"] for row in body["rows"] if row["contender"].startswith("plain")} == {1.0}


def test_a_text_that_differs_across_engines_is_no_difference(capsys, tmp_path):
    """Two models with other weights in one comparison: each text is held to its own model's."""
    pytest.importorskip("transformers", "5.20")
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "a", "prompt": "the quick"}))
    words = ["compare", "-m", f"transformers:{models('llama')}", "--target", f"transformers:{models('qwen3')}"]
    words += ["--method", "ngram", "--prompts", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "out")]

    assert run_command([*words, "-n", "12", "--no-bounds", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []
    texts = {tuple(r.tokens) for lap in read_results(tmp_path / "out").laps for r in lap.records}
    assert len(texts) == 2
