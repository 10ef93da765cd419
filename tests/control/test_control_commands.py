"""``--control`` on the command line: the last line, JSON, comparisons, mistakes."""

from __future__ import annotations

import json
import re

import pytest
from spec_cli.main import run_command

from tests.support.small_models import tiny_gguf

MODEL = ["-m", str(tiny_gguf(0)), "-p", "def add(a, b):", "-n", "30", "--method", "ngram"]


@pytest.fixture
def spec(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPEC_CONTROL", raising=False)

    def call(*arguments):
        code = run_command(list(arguments))
        return code, *capsys.readouterr()

    return call


def test_the_last_line_says_what_was_chosen_and_what_it_gained(spec):
    code, _, err = spec("generate", *MODEL, "--control", "auto")

    assert code == 0
    assert re.search(r" · auto: .* of \d+ steps, [0-9.]+ times plain decoding's speed", err.splitlines()[-1])
    assert "auto: " not in spec("generate", *MODEL)[2]


def test_json_has_the_report_and_the_setting(spec):
    _, out, _ = spec("generate", *MODEL, "--control", "auto", "--json")
    body = json.loads(out)

    assert body["settings"]["control"] == {"value": "auto", "origin": "flag"}
    assert {"gain", "ledger", "methods", "off"} <= set(body["stats"]["reports"]["auto"])
    assert json.loads(spec("generate", *MODEL, "--json")[1])["stats"]["reports"] == {}


def test_the_text_is_the_same_with_every_control(spec):
    texts = [spec("generate", *MODEL, "--temperature", "0.9", "--control", name)[1] for name in ("fixed", "auto")]

    assert texts[0] == texts[1]


def test_the_environment_and_the_file_name_a_controller_too(spec, monkeypatch, tmp_path):
    (tmp_path / "spec.toml").write_text('control = "auto"\n\n[auto]\nshare = 0.03\n', "utf-8")
    body = json.loads(spec("generate", *MODEL, "--json")[1])
    assert body["stats"]["reports"]["auto"]["ledger"]["share"] == 0.03

    monkeypatch.setenv("SPEC_CONTROL", "fixed")
    assert json.loads(spec("generate", *MODEL, "--json")[1])["stats"]["reports"] == {}


def test_a_comparison_keeps_what_the_controller_reports(spec, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"id": "1", "family": "f", "prompt": "a b a b a b"}\n', "utf-8")
    arguments = ["-m", str(tiny_gguf(0)), "--method", "ngram", "-n", "8", "--repeats", "1", "--prompts", "p.jsonl"]
    code, _, err = spec("compare", *arguments, "--control", "auto", "--out", "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text("utf-8").splitlines()]
    laps = [line for line in lines if line["kind"] == "record"]

    assert code == 0, err
    records = [lap for lap in laps if lap["kind"] == "record"]
    assert {lap["contender"]: list(lap["lap"]["reports"]) for lap in records} == {"plain": [], "ngram": ["auto"]}


def test_a_misspelt_controller_is_one_message(spec):
    code, _, err = spec("generate", *MODEL, "--control", "atuo")

    assert code == 2
    assert "no control named 'atuo' is installed" in err and "auto" in err.splitlines()[-1]
