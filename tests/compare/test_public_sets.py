"""Public sets from the user's file: rows as their pages have them, recognised by content, refused by what they are."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from spec_cli.main import run_command
from spec_commands.prompts import Prompt
from spec_compare.exports.anonymous import anonymous_copy
from spec_compare.inputs.conversation import Conversation, messages, picture_of
from spec_compare.inputs.public_sets import SUBSETS, read_set, recognise_set
from spec_compare.inputs.sources import source
from spec_compare.records.prompts import line_of
from spec_compare.servers.pictures import send_pictures

from spec_core.errors import UsageError

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
TALK = [
    {"from": "gpt", "value": "Hello."}, {"from": "human", "value": "One?"}, {"from": "gpt", "value": "1"},
    {"from": "human", "value": "Two?"},
]  # fmt: skip
ROWS = {
    "sharegpt": {"id": "abc_0", "conversations": TALK},
    "alpaca": {"instruction": "Sort the words.", "input": "b a", "output": "a b"},
    "humaneval": {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": ""},
    "mt-bench": {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
    "spec-bench": {"question_id": 81, "category": "rag", "turns": ["Answer."], "reference": ["x"]},
    "speed-bench": {"question_id": "q", "category": "coding", "turns": ["Code."], "source": "s"},
    "speculator-benchmarks": {"prompt": "Translate this."},
    "mmspec": {"id": "img_1", "image": "vqa/1.png", "turns": ["What?", "Where?"], "topic": "general vqa"},
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    """Write rows as JSON lines, or in another way by the suffix."""

    def write(*rows, name="set.jsonl"):
        path = tmp_path / name
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        data = json.dumps(rows).encode() if name.endswith(".json") else lines
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        (tmp_path / "images" / "vqa").mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / "vqa" / "1.png").write_bytes(PIXEL)
        return path

    return write


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("form", ["set.jsonl", "set.json", "set.jsonl.gz"])
def test_every_set_is_read_as_lines_as_a_list_and_compressed(name, form, file):
    (prompt,) = read_set(name, file(ROWS[name], name=form))

    assert prompt.family and prompt.id


def test_prompts_of_each_set(file):
    read = {name: read_set(name, file(row))[0] for name, row in ROWS.items()}

    assert read["sharegpt"].turns == ("One?", "Two?") and read["sharegpt"].family == "sharegpt"
    assert read["alpaca"] == Prompt("1", "alpaca", "Sort the words.\n\nb a")
    assert read["humaneval"].given == "def f():\n"
    assert read["mt-bench"].turns == ("Write.", "Again.") and read["mt-bench"].family == "writing"
    assert read["speculator-benchmarks"] == Prompt("set/1", "set", "Translate this.")
    assert read["mmspec"].family == "general vqa" and picture_of(read["mmspec"]).endswith("images/vqa/1.png")


@pytest.mark.parametrize(
    ("name", "known"), [("sharegpt", True), ("alpaca", True), ("mmspec", True), ("mt-bench", False)]
)
def test_a_form_is_recognised_where_it_is_certain(name, known, file):
    for form in ("set.jsonl", "set.json"):
        assert recognise_set(file(ROWS[name], name=form)) == (name if known else None)
    assert len(source(file(ROWS[name]), chat=False).prompts) == 1


def test_our_own_files_are_none_of_them(file):
    for row in (
        {"id": "1", "prompt": "a"},
        {"tokens": [1]},
        {"messages": [{"role": "user", "content": "x"}]},
        [1],
        3,
        {"prompt": "a", "instruction": "b", "output": "c"},
    ):
        assert recognise_set(file(row)) is None


def test_the_nine_files_are_one_directory(tmp_path):
    for name in SUBSETS[:3]:
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    prompts = read_set("speculator-benchmarks", tmp_path)

    assert [p.family for p in prompts] == [name for name in SUBSETS[:3] for _ in range(2)]
    assert len({p.id for p in prompts}) == 6


def test_equal_ids_are_numbered_and_rows_without_a_question_are_left_out(file, capsys):
    empty = {"id": "e", "conversations": []}
    answers = {"id": "f", "conversations": [{"from": "gpt", "value": "x"}]}
    prompts = read_set("sharegpt", file(ROWS["sharegpt"], empty, answers, ROWS["sharegpt"]))

    assert [p.id for p in prompts] == ["abc_0#1", "abc_0#2"]
    assert "2 rows without a question" in capsys.readouterr().err


WRONG = {
    "another set": ("alpaca", b'{"prompt": "x", "id": 3}', "is not of alpaca: it has 'prompt', 'id'"),
    "no object": ("sharegpt", b"[1, 2]", "is not of sharegpt"),
    "a text": ("mt-bench", b'"text"', "is not of mt-bench: it has str"),
    "empty turns": ("mt-bench", b'{"turns": []}', "is not of mt-bench"),
    "turns of numbers": ("spec-bench", b'{"turns": [1]}', "is not of spec-bench"),
    "another encoding": ("alpaca", "{\"instruction\": \"ä\"}".encode("latin-1"), "utf-8"),
    "UTF-16": ("alpaca", '{"instruction": "a"}'.encode("utf-16"), "utf-8"),
    "half a line": ("alpaca", b'{"instruction": "a', "not valid JSON"),
    "deep": ("alpaca", b"[" * 100_000, "not valid JSON"),
    "nothing": ("alpaca", b"", "has no prompts"),
    "a picture that is missing": ("mmspec", b'{"id": 1, "image": "no.png", "turns": ["x"]}', "no picture 'no.png'"),
    "a picture elsewhere": ("mmspec", b'{"id": 1, "image": "../../x.png", "turns": ["x"]}', "no picture '../../x.png'"),
    "a picture at a path": ("mmspec", b'{"id": 1, "image": "/etc/x.png", "turns": ["x"]}', "no picture '/etc/x.png'"),
    "a row that is masked": (
        "speed-bench", b'{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"]}', "no prompt yet",
    ),
    "an unknown name": ("nonsense", b"{}", "no suite 'nonsense'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_before_weights(case, tmp_path, capsys):
    name, content, message = WRONG[case]
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)

    assert (
        run_command(["compare", "-m", "/nowhere.gguf", "--method", "ngram", "--suite", name, "--prompts", str(path)])
        == 2
    )
    assert message in capsys.readouterr().err


def test_a_huge_line_a_broken_archive_and_a_directory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("spec_compare.inputs.public_sets.LINE_LARGEST", 1 << 10)
    (tmp_path / "a.jsonl").write_text('{"instruction": "' + "x" * 5000 + '", "output": ""}')
    (tmp_path / "b.jsonl.gz").write_bytes(b"no archive")
    for path, message in ((tmp_path / "a.jsonl", "line 1 has more than"), (tmp_path / "b.jsonl.gz", "b.jsonl.gz"),
                          (tmp_path, "directory without files"), (tmp_path / "none", "none")):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            read_set("alpaca", path)


def test_later_turns_keep_the_picture_and_requests_carry_it(file):
    (prompt,) = read_set("mmspec", file(ROWS["mmspec"]))
    sent = send_pictures(prompt)

    assert messages(prompt, ["A lake."])[0] == prompt.given[0]
    assert [m["role"] for m in messages(sent, ["A lake."])] == ["user", "assistant", "user"]
    part = messages(sent, ["A lake."])[0]["content"][0]
    assert part["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"


def test_stored_prompts_with_pictures_are_read_back_without_their_folder(file, tmp_path):
    (prompt,) = read_set("mmspec", file(ROWS["mmspec"]))
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({**line_of(prompt), "picture": "1.png"}) + "\n")
    (stored,) = source(path, chat=False).prompts

    assert isinstance(stored, Conversation) and picture_of(stored) == "1.png" and stored.turns == prompt.turns


def test_a_picture_that_is_none_is_refused(file):
    path = file(ROWS["mmspec"])
    (path.parent / "images" / "vqa" / "1.png").write_text("no picture")
    (prompt,) = read_set("mmspec", path)

    with pytest.raises(UsageError, match="no picture of at most"):
        send_pictures(prompt)


def test_a_set_is_compared(file, tmp_path, capsys):
    path = file(ROWS["alpaca"], {**ROWS["alpaca"], "input": ""}, name="alpaca_data.json")
    words = ["-m", "zoo:pico", "--method", "ngram", "-n", "8", "--no-bounds", "--json", "--out", str(tmp_path / "o")]

    assert run_command(["compare", *words, "--prompts", str(path)]) == 0
    assert {row["family"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"alpaca", "all"}
    with anonymous_copy(tmp_path / "o", True) as copy:
        assert (copy / "prompts.jsonl").exists()
