"""``spec compare merge`` and ``export``: results side by side, and in the formats of other programs."""

from __future__ import annotations

import csv
import json
import os

import pytest
from spec_cli.main import run_command
from spec_compare.exports.answers import file_names

from tests.support.toy_plugins import install

PROMPTS = [{"id": i, "family": f, "prompt": p} for i, f, p in (("81", "u", "HELLO"), ("9", "v", "MORE WORDS"))]
COMMAND = ["compare", "-m", "toy:dense", "--prompts", "p.jsonl", "-n", "12", "--no-bounds", "--method", "repeat"]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)
    install(monkeypatch)
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
    assert run_command([*COMMAND, "--out", "one"]) == 0
    return tmp_path


def on_another_machine(folder, source: str, name: str, factor: float) -> None:
    """Change results to another host and other times."""
    (folder / name).mkdir()
    changed = []
    for line in map(json.loads, (folder / source / "results.jsonl").read_text().splitlines()):
        if line["kind"] == "header":
            line |= {"host": name, "environment": {**line["environment"], "cpu": f"the processor of {name}"}}
        else:
            line |= {key: line[key] * factor for key in ("first_seconds", "decode_seconds", "whole_seconds")}
        changed.append(json.dumps(line) + "\n")
    (folder / name / "results.jsonl").write_text("".join(changed))


def test_machines_stand_side_by_side_and_are_not_pooled(folder, capsys):
    on_another_machine(folder, "one", "slow", 10.0)
    capsys.readouterr()
    assert run_command(["compare", "merge", "one", "slow", "--json"]) == 0
    fast, slow = json.loads(capsys.readouterr().out)["machines"]
    assert run_command(["compare", "merge", "one", "slow"]) == 0
    table = capsys.readouterr().out

    assert (slow["machine"], slow["cpu"]) == ("slow", "the processor of slow")
    for ours, theirs in zip(fast["rows"], slow["rows"], strict=True):
        assert ours["contender"] == theirs["contender"]
        assert ours["rate"] == pytest.approx(10 * theirs["rate"]) and ours["prompts"] == theirs["prompts"]
        assert ours["speedup"] == pytest.approx(theirs["speedup"])
    assert "slow" in table and table.count(": tokens/s ") == 2 * 3


def test_machines_have_intervals_and_whether_they_overlap(folder, capsys):
    """Both slow down alike, so that the speedups and their intervals stay; five prompts have intervals."""
    prompts = [{"id": f"{i}", "family": "f", "prompt": f"WORD {i} WORD"} for i in range(5)]
    (folder / "p.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    assert run_command([*COMMAND, "--out", "five"]) == 0
    on_another_machine(folder, "five", "slow", 10.0)
    capsys.readouterr()
    assert run_command(["compare", "merge", "five", "slow", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["overlap"]
    assert run_command(["compare", "merge", "five", "slow"]) == 0
    table = capsys.readouterr().out

    assert {(one["contender"], one["overlap"]) for one in answers} == {("repeat", True)}
    assert "slow: 90% CI" in table and "slow: tokens/step" in table
    assert [line.split()[-1] for line in table.splitlines() if line.startswith(("plain", "repeat"))] == ["-", "overlap"]


def test_the_same_machine_twice_is_told_apart_by_directory(folder, capsys):
    assert run_command([*COMMAND, "--out", "two"]) == 0
    capsys.readouterr()
    assert run_command(["compare", "merge", "one", "two"]) == 0

    assert "(one)" in (table := capsys.readouterr().out) and "(two)" in table


@pytest.mark.parametrize(
    ("more", "output"),
    [
        (["--seed", "3"], "seed is 0 and 3"),
        (["--limit", "1", "--family", "u"], "prompts is"),
        (["-o", "repeat.length=2"], "repeat: repeat.length is 3 and 2"),
        (["--method", "mute"], "mute"),
    ],
)
def test_another_comparison_is_not_merged(folder, capsys, more, output):
    assert run_command([*COMMAND, *more, "--out", "two"]) == 0
    capsys.readouterr()

    assert run_command(["compare", "merge", "one", "two"]) == 2
    err = capsys.readouterr().err
    assert "two has another comparison than one" in err and output in err


def test_one_directory_cannot_be_merged(folder, capsys):
    assert run_command(["compare", "merge", "one"]) == 2
    assert "two directories or more" in capsys.readouterr().err


def test_csv_has_the_rows_of_the_summary(folder):
    assert run_command(["compare", "export", "one", "--csv", "t.csv"]) == 0
    rows = json.loads((folder / "one" / "summary.json").read_text())["rows"]
    written = list(csv.DictReader((folder / "t.csv").open(newline="")))

    assert [(r["contender"], r["family"], float(r["rate"])) for r in written] == [
        (r["contender"], r["family"], r["rate"]) for r in rows
    ]
    assert json.loads(written[-1]["conditional"]) == rows[-1]["conditional"]
    assert {(r["baseline"], r["model"], r["dtype"]) for r in written} == {("plain", "toy:dense", "float64")}


def test_texts_have_a_line_each(folder):
    assert run_command(["compare", "export", "one", "--texts", "t.csv"]) == 0
    written = list(csv.DictReader((folder / "t.csv").open(newline="")))

    assert [(r["contender"], r["prompt"], r["new_tokens"]) for r in written] == [
        (name, prompt, "12")
        for prompt, order in (("81", ("plain", "repeat")), ("9", ("repeat", "plain")))
        for name in order
    ]
    assert all(int(r["emitted"]) == 11 and float(r["decode_seconds"]) > 0 for r in written)


def test_parquet_has_the_rows_or_says_what_it_needs(folder, capsys, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra [parquet] is not installed")
    assert run_command(["compare", "export", "one", "--parquet", "t.parquet"]) == 0
    rows = json.loads((folder / "one" / "summary.json").read_text())["rows"]
    table_rows = parquet.read_table("t.parquet").to_pylist()

    assert [(r["contender"], r["rate"], r["conditional"]) for r in table_rows] == [
        (r["contender"], r["rate"], r["conditional"]) for r in rows
    ]


def test_parquet_without_its_package_says_how_to_get_it(folder, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert run_command(["compare", "export", "one", "--parquet", "t.parquet"]) == 2
    assert "pip install 'spec-core[parquet]'" in capsys.readouterr().err


def test_export_without_a_format_is_refused(folder, capsys):
    assert run_command(["compare", "export", "one"]) == 2
    assert "no format was named" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--csv", "--spec-bench"])
def test_a_place_that_cannot_be_written_is_refused(folder, capsys, flag):
    assert run_command(["compare", "export", "one", flag, "p.jsonl/x"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "merge", "export"])
def test_options_before_a_subcommand_are_refused(folder, capsys, command):
    assert run_command(["compare", "--batch", "2", command, "one"]) == 2
    assert f"--batch is no option of `spec compare {command}`" in capsys.readouterr().err


def test_names_of_answer_files_are_safe_and_unique():
    names = file_names(["a/b", "a b", "../..", "draft-model=x.gguf", "ngram + mtp"])

    assert list(names.values()) == ["a-b", "a-b-2", "contender", "draft-model=x.gguf", "ngram-+-mtp"]


def test_swept_settings_are_columns_of_the_exported_table(folder):
    assert run_command([*COMMAND, "--sweep", "repeat.length=1,2", "--sweep", "seed=3,4", "--out", "swept"]) == 0
    assert run_command(["compare", "export", "swept", "--csv", "t.csv"]) == 0
    written = [r for r in csv.DictReader((folder / "t.csv").open(newline="")) if r["family"] == "all"]

    assert [(r["methods"], r["repeat.length"], r["seed"]) for r in written] == [
        ("plain", "", "3"), ("plain", "", "4"),
        ("repeat", "1", "3"), ("repeat", "1", "4"), ("repeat", "2", "3"), ("repeat", "2", "4"),
    ]  # fmt: skip
    assert "max_tokens" not in written[0]
    assert run_command(["compare", "export", "swept", "--texts", "x.csv"]) == 0
    texts = list(csv.DictReader((folder / "x.csv").open(newline="")))
    assert {(r["repeat.length"], r["seed"]) for r in texts if r["contender"].startswith("repeat")} == {
        ("1", "3"), ("1", "4"), ("2", "3"), ("2", "4"),
    }  # fmt: skip
