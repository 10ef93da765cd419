"""Results that name no person or machine, and what a paper cites."""

from __future__ import annotations

import json
import zipfile
from email.message import Message

import attrs
import pytest
from spec_cli.main import run_command
from spec_compare.exports import citation
from spec_compare.exports.anonymous import hide_names, hide_paths
from spec_compare.exports.citation import ARXIV, bibtex, paper
from spec_compare.records.header import PluginFacts
from spec_compare.records.reading import read_results

from tests.compare.test_compare import begin, words

SECRET = "alice"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results whose every path, host and command names a person."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        begin(patch, folder)
        assert run_command(words("--method", "repeat", "--no-bounds", "--out", "out")) == 0
    head, *records = (folder / "out" / "results.jsonl").read_text().splitlines()
    header = json.loads(head)
    header["host"], header["command"] = f"{SECRET}-desk", [f"/home/{SECRET}/bin/spec", "compare"]
    header["targets"][0] |= {"model": f"/home/{SECRET}/m.gguf"}
    header["targets"][0]["files"] = [{"path": f"C:\\Users\\{SECRET}\\m.gguf", "bytes": 1, "sha256": "0" * 64}]
    header["prompts"]["source"] = f"../{SECRET}/prompts.jsonl"
    for contender in header["contenders"]:
        contender["settings"]["model"]["value"] = f"~{SECRET}/m.gguf"
    session = {"kind": "session", "date": header["date"], "command": [SECRET], "load_average": None, "laps": 0}
    lines = [json.dumps(header), json.dumps(session), *records]
    (folder / "out" / "results.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_the_planted_names_are_there_without_the_option(folder):
    assert SECRET in (folder / "out" / "results.jsonl").read_text()
    assert len(read_results(folder / "out").laps) == read_results(folder / "out").header.laps


@pytest.mark.parametrize("option", ["--latex", "--markdown", "--csv", "--texts"])
def test_an_anonymous_export_has_no_name(folder, option, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(["compare", "export", "out", option, "f", "--anonymous"]) == 0

    assert SECRET not in (folder / "f").read_text() and "--anonymous" not in capsys.readouterr().err


def test_an_anonymous_bundle_has_no_name_and_holds(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(["compare", "bundle", "out", "b.zip", "--no-report", "--anonymous"]) == 0
    assert run_command(["compare", "check", "b.zip"]) == 0

    with zipfile.ZipFile("b.zip") as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert not any(SECRET in text for text in texts)
    assert "--anonymous leaves them out" not in capsys.readouterr().err


@pytest.mark.parametrize("cut", [b'{"kind": "rec', b'{"kind": "record"}\n', b"[1, 2]\n"])
def test_interrupted_or_malformed_results_are_no_traceback(folder, cut, tmp_path, monkeypatch, capsys):
    """A line that a program was writing when it ended is left out; a wrong line is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    data = (folder / "out" / "results.jsonl").read_bytes()
    (tmp_path / "out" / "results.jsonl").write_bytes(data + cut)
    is_whole = cut.endswith(b"\n")
    assert run_command(["compare", "export", "out", "--markdown", "t.md", "--anonymous"]) == (2 if is_whole else 0)

    assert "Traceback" not in capsys.readouterr().err and (tmp_path / "t.md").exists() is not is_whole


def test_a_bundle_with_names_says_so(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(["compare", "bundle", "out", "c.zip", "--no-report"]) == 0

    assert "--anonymous leaves them out" in capsys.readouterr().err


def test_an_anonymous_report_has_no_name(folder, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra report")
    monkeypatch.chdir(folder)
    assert run_command(["compare", "report", "out", "r.html", "--anonymous"]) == 0

    assert SECRET not in (folder / "r.html").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/m.gguf", "m.gguf"),
        ("transformers:/home/alice/m/", "transformers:m"),
        ("draft-model:file=/a/b.gguf,draft_max=4", "draft-model:file=b.gguf,draft_max=4"),
        ("C:\\Users\\alice\\m.gguf", "C:m.gguf"),
        ("zoo:pico", "zoo:pico"),
        ("two words", "two words"),
    ],
)
def test_of_a_path_the_last_part_stays(text, expected):
    assert hide_paths(text) == hide_paths({text: [text]})[expected][0] == expected


def test_figures_and_texts_stay_as_they_are(folder):
    data = (folder / "out" / "results.jsonl").read_bytes()
    before, after = ([json.loads(line) for line in lines.splitlines()] for lines in (data, hide_names(data)))

    assert [one for one in before if one["kind"] == "record"] == [one for one in after if one["kind"] == "record"]
    assert before[0]["environment"] == after[0]["environment"]


def test_citations_are_the_software_and_the_papers_of_the_plugins(folder):
    header = read_results(folder / "out").header
    plugins = [
        PluginFacts("eagle3", "method", "spec-core", "0.1.0", "spec_methods", None),
        PluginFacts("suffix", "method", "spec-core", "0.1.0", "spec_methods", None),
        PluginFacts("gone", "method", "spec-gone", "1.2", "spec_gone", None),
        PluginFacts("gguf", "target", "spec-core", "0.1.0", "spec_targets", None),
    ]
    text = bibtex(attrs.evolve(header, plugins=plugins))

    assert text.startswith("@software{spec-core,") and "{{The spec-core developers}}" in text
    assert all(f"@misc{{arxiv-{number}," in text for number in ("2503.01840", "2411.04975", "2411.10666"))
    assert "@software{spec-gone," in text and "% gone: its docstring names no paper" in text
    assert "gguf" not in text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"Summary": "Copies & more"}, ["title = {other: Copies \\& more}"]),
        ({"Author": "A. Bee"}, ["author = {A. Bee}"]),
        ({"Author-email": "A. Bee <a@example.org>, C. Dee <c@example.org>"}, ["author = {A. Bee and C. Dee}"]),
        ({"Author-email": "a@example.org"}, []),
        ({"Author": "Müller"}, ["author = {M?ller}"]),
    ],
)
def test_a_distribution_is_cited_by_what_its_metadata_have(folder, monkeypatch, fields, expected):
    """Most have neither a summary nor an author."""
    installed = citation.metadata.metadata

    def metadata_of(name):
        if name != "other":
            return installed(name)
        message = Message()
        for field, value in fields.items():
            message[field] = value
        return message

    monkeypatch.setattr(citation.metadata, "metadata", metadata_of)
    plugins = [PluginFacts("other", "method", "other", "0.1", "other", None)]
    text = bibtex(attrs.evolve(read_results(folder / "out").header, plugins=plugins)).split("@software{other,")[1]

    assert all(line in text for line in expected) and "None" not in text and "@example" not in text
    assert ("author" in text) == any("author" in line for line in expected)


def test_an_entry_without_an_author_has_a_key_and_a_year():
    """BibTeX's styles sort and label by them."""
    text = paper("2411.04975", ["suffix"])

    assert "key = {arXiv 2411.04975}" in text and "year = {2024}" in text


@pytest.mark.parametrize(
    ("text", "numbers"), [("2503.01840.", ["2503.01840"]), ("v1.2503.01840", []), ("12503.01840", [])]
)
def test_numbers_of_papers(text, numbers):
    assert ARXIV.findall(text) == numbers


def test_the_command_prints_it(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run_command(["compare", "cite", "out"]) == 0

    assert "@software{spec-core," in capsys.readouterr().out
