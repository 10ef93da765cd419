"""Spec-Bench: its questions are read as conversations, its answer files written, and its figures computed."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from spec_cli.main import run_command
from spec_compare.records.reading import read_results

from spec_core import load
from tests.compare.spec_bench_figures import figures

QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["def add(a, b):", "Now subtract."], "reference": []},
    {"question_id": 101, "category": "coding", "turns": ["for i in range(10):\n    print(", "And now in reverse."]},
    {"question_id": 7, "category": "qa", "turns": ["Who wrote it?"]},
    {"question_id": 12, "category": "qa", "turns": ["import os\nimport sys\nimport"]},
]
N = 24


@pytest.fixture(scope="module")
def comparison_folder(tmp_path_factory):
    """The folder of a comparison of these questions on zoo:pico, with its answer files in ``answers``."""
    folder = tmp_path_factory.mktemp("spec-bench")
    (folder / "question.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    command = ["compare", "-m", "zoo:pico", "--prompts", str(folder / "question.jsonl"), "-n", str(N), "--threads", "1"]
    more = [
        "--method",
        "ngram",
        "--method",
        "draft-model",
        "--repeats",
        "2",
        "--no-bounds",
        "--out",
        str(folder / "out"),
    ]
    assert run_command([*command, *more]) == 0
    assert run_command(["compare", "export", str(folder / "out"), "--spec-bench", str(folder / "answers")]) == 0
    return folder


def rows(folder: Path) -> dict[tuple[str, str], dict]:
    rows = json.loads((folder / "out" / "summary.json").read_text("utf-8"))["rows"]
    return {(row["contender"], row["family"]): row for row in rows}


def test_every_turn_is_asked_with_the_answers_before_it(comparison_folder):
    words = load("zoo:pico", weights=False).tokenizer
    records = {
        (r.contender, r.prompt, r.turn): r for lap in read_results(comparison_folder / "out").laps for r in lap.records
    }
    first = records["ngram", "81", 0]
    talk = [("user", "def add(a, b):"), ("assistant", first.text), ("user", "Now subtract.")]

    assert first.prompt_tokens == len(words.encode_chat([{"role": "user", "content": "def add(a, b):"}]))
    second = words.encode_chat([{"role": role, "content": content} for role, content in talk])
    assert records["ngram", "81", 1].prompt_tokens == len(second) > first.prompt_tokens
    assert {(p, t) for name, p, t in records if name == "plain"} == {
        ("81", 0),
        ("81", 1),
        ("101", 0),
        ("101", 1),
        ("7", 0),
        ("12", 0),
    }
    assert all(r.reused == 0 for r in records.values())


def test_a_row_counts_the_turns_of_a_question_together(comparison_folder):
    row = rows(comparison_folder)["ngram", "writing"]
    records = [
        r
        for lap in read_results(comparison_folder / "out").laps
        for r in lap.records
        if (r.contender, r.prompt) == ("ngram", "81")
    ]

    assert (row["prompts"], row["identical"]) == (1, 1)
    assert row["tokens"] == sum(len(r.tokens) for r in records if r.repeat == 0)


@pytest.mark.parametrize("family", ["all", "writing", "qa"])
@pytest.mark.parametrize("contender", ["ngram", "draft-model"])
def test_an_independent_computation_of_the_answer_files_agrees(comparison_folder, contender, family):
    """Within 1 %, as means over two runs."""
    category = "overall" if family == "all" else family
    runs = [
        figures(
            comparison_folder / "answers" / f"{contender}-run{i}.jsonl",
            comparison_folder / "answers" / f"plain-run{i}.jsonl",
            category,
        )
        for i in (1, 2)
    ]
    shown = rows(comparison_folder)[contender, family]["spec_bench"]

    for name, value in shown.items():
        assert value == pytest.approx(sum(run[name] for run in runs) / 2, rel=0.01), name


def test_categories_of_mt_bench_are_pooled(comparison_folder):
    numbers = figures(
        comparison_folder / "answers" / "ngram-run1.jsonl",
        comparison_folder / "answers" / "plain-run1.jsonl",
        "mt_bench",
    )

    assert numbers["speedup"] > 0 and numbers["mean_accepted_tokens"] >= 1


def test_answer_files_have_the_fields_and_the_order_of_spec_bench(comparison_folder):
    lines = [
        json.loads(line)
        for line in (comparison_folder / "answers" / "ngram-run1.jsonl").read_text("utf-8").splitlines()
    ]
    choice = lines[2]["choices"][0]

    assert [line["question_id"] for line in lines] == [7, 12, 81, 101]
    assert set(lines[0]) == {"question_id", "category", "answer_id", "model_id", "choices", "tstamp"}
    assert set(choice) == {"index", "turns", "decoding_steps", "new_tokens", "wall_time", "accept_lengths"}
    assert [len(choice[n]) for n in ("turns", "decoding_steps", "new_tokens", "wall_time")] == [2] * 4
    assert len(choice["accept_lengths"]) == sum(choice["decoding_steps"])
    assert sum(choice["accept_lengths"]) == sum(choice["new_tokens"]) - 2, "each turn's first token comes from prefill"


def test_the_wide_table_shows_both_figures(comparison_folder, capsys):
    assert run_command(["compare", "show", str(comparison_folder / "out"), "--wide"]) == 0
    row, out = rows(comparison_folder)["ngram", "all"], capsys.readouterr().out

    assert "Spec-Bench × / MAT" in out
    assert f"{row['spec_bench']['speedup']:.2f}× / {row['spec_bench']['mean_accepted_tokens']:.2f}" in out


@pytest.mark.skipif("SPECBENCH_DIR" not in os.environ, reason="SPECBENCH_DIR names no checkout of Spec-Bench")
def test_spec_bench_s_own_scripts_accept_the_files(comparison_folder, capsys, monkeypatch, tmp_path):
    """Its speed.py, with the model's tokenizer, and its equal.py."""
    tokenizer = load("zoo:pico", weights=False).tokenizer

    class Words:
        @staticmethod
        def from_pretrained(path):
            return lambda text: type("Ids", (), {"input_ids": [0, *tokenizer.encode(text, bos=False)]})

    module = import_file(Path(os.environ["SPECBENCH_DIR"]) / "evaluation" / "speed.py")
    monkeypatch.setattr(module, "AutoTokenizer", Words)
    own, base = (comparison_folder / "answers" / f"{name}-run1.jsonl" for name in ("ngram", "plain"))
    rate, _, speedup, lengths = module.speed(str(own), str(base), "", task="overall", report=False)
    numbers = figures(own, base, count=lambda text: 1 + len(tokenizer.encode(text, bos=False)))

    assert (rate, speedup) == pytest.approx((numbers["tokens_per_second"], numbers["speedup"]))
    assert sum(lengths) / len(lengths) == pytest.approx(numbers["mean_accepted_tokens"])
    equal = import_file(Path(os.environ["SPECBENCH_DIR"]) / "evaluation" / "equal.py")
    equal.run_compare(f"{comparison_folder}/answers/", "ngram-run1.jsonl", "plain-run1.jsonl")
    assert "Result totally Equal!" in capsys.readouterr().out


def import_file(path: Path):
    spec = importlib.util.spec_from_file_location(f"spec_bench_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
