"""A rule that steers the text: contenders are compared with plain decoding under it."""

from __future__ import annotations

import json

import pytest
from spec_cli.main import run_command

from tests.support.installed import ROOT

SOURCE = ROOT / "tests" / "out_of_tree" / "spec-contrast" / "spec_contrast.py"


@pytest.fixture
def contrast(tmp_path, monkeypatch):
    """The package of a rule, found by its metadata."""
    folder = tmp_path / "spec_contrast-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: spec-contrast\nVersion: 0.1\n", "utf-8")
    (folder / "entry_points.txt").write_text("[spec_core.rules]\ncontrast = spec_contrast:Contrast\n", "utf-8")
    (tmp_path / "spec_contrast.py").write_text(SOURCE.read_text("utf-8"), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_texts_are_compared_with_plain_decoding_under_the_rule(contrast, tmp_path, capsys, temperature):
    rule = ["--rule", "contrast:file=zoo:pico-draft,weight=2.0", "--temperature", temperature]
    text = ["-n", "12", "--limit", "1", "--no-bounds", "--threads", "1", "--out", str(tmp_path / "out")]
    assert run_command(["compare", "-m", "zoo:pico", "--method", "ngram", *rule, *text]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    rows = {row["contender"]: row for row in summary["rows"] if row["family"] == "all"}

    assert set(rows) == {"plain rule=contrast:file=zoo:pico-draft,weight=2.0", "ngram"}
    assert all(row["identical"] == row["prompts"] for row in rows.values())


def test_other_rules_are_compared_with_the_targets_text(contrast, tmp_path, capsys):
    text = ["-n", "8", "--limit", "1", "--no-bounds", "--threads", "1", "--out", str(tmp_path / "out")]
    assert run_command(["compare", "-m", "zoo:pico", "--method", "ngram", "--rule", "rejection", *text]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))

    assert {row["contender"] for row in summary["rows"]} == {"plain", "ngram"}
