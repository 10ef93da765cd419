"""``spec generate`` with a constraint."""

from __future__ import annotations

import json
import re
import sys

import pytest
from spec_cli.main import run_command
from spec_grammar import JsonSchema, Regex
from spec_grammar.words import library

from spec_core import UsageError

SCHEMA = {"enum": ["red", "green"]}
MODEL = ["generate", "-m", "zoo:pico", "-p", "x = ", "--json", "--method", "forced"]


def generate(capsys, *flags: str) -> dict:
    assert run_command([*MODEL, *flags]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def llguidance():
    return pytest.importorskip("llguidance", reason="needs the extra grammar")


def test_a_schema_is_json_or_a_file(llguidance, capsys, tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), "utf-8")
    written = generate(capsys, "--json-schema", json.dumps(SCHEMA))
    read = generate(capsys, "--json-schema", str(tmp_path / "schema.json"))

    assert written["text"] in ('"red"', '"green"') and written["finish_reason"] == "complete"
    assert written["text"] == read["text"]


@pytest.mark.parametrize("text", ['root ::= "v" [0-9]{2}', 'start: "v" N\nN: /[0-9]{2}/'], ids=["gbnf", "lark"])
def test_a_grammar_is_a_file_of_either_notation(llguidance, capsys, tmp_path, text):
    (tmp_path / "grammar.txt").write_text(text, "utf-8")

    assert re.fullmatch(r"v\d\d", generate(capsys, "--grammar", str(tmp_path / "grammar.txt"))["text"])


def test_an_expression(llguidance, capsys):
    assert re.fullmatch("[ab]{3}", generate(capsys, "--regex", "[ab]{3}")["text"])


REFUSED = {
    "two": (["--regex", "a", "--json-schema", "{}"], "--json-schema and --regex are both given"),
    "no-file": (["--grammar", "nowhere.gbnf"], "No such file"),
    "not-json": (["--json-schema", "{"], "is not JSON"),
    "deep": (["--json-schema", '{"items":' * 90 + "{}" + "}" * 90], "nested more than 64 levels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_a_message_before_a_model_is_loaded(capsys, name):
    flags, message = REFUSED[name]

    assert run_command(["generate", "-m", "nowhere.gguf", "-p", "x", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and "nowhere.gguf" not in error


def test_without_the_extra_the_message_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)

    with pytest.raises(UsageError, match="needs llguidance") as caught:
        library()

    assert "pip install 'spec-core[grammar]'" in caught.value.hint


def test_constraints_are_checked_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)

    JsonSchema(SCHEMA).check()
    Regex("a").check()
