"""``spec compare``: all contenders on the same prompts, no speed without equal texts, every number with its records.

Longer than our files are: all tests share one command and its prompts.
"""

from __future__ import annotations

import json
from itertools import count

import pytest
from spec_cli.main import run_command
from spec_commands import machine
from spec_compare.measuring import calibration, measure

from spec_core import load
from tests.support.toy_plugins import settle

PROMPTS = [
    {"id": "a", "family": "first", "prompt": "HELLO"},
    {"id": "b", "family": "second", "prompt": "MORE WORDS"},
    {"id": "c", "family": "second", "prompt": "A B C"},
]
N = 14


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder with prompts.jsonl, and the toy plugins installed."""
    return begin(monkeypatch, tmp_path)


def begin(monkeypatch, folder):
    """Write prompts.jsonl in a folder and work there, with the toy plugins installed."""
    settle(monkeypatch, folder)
    monkeypatch.setattr(calibration, "FIRST", 2)  # the costs of a toy need no good medians
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
    return folder


@pytest.fixture
def compare(folder, capsys):
    """Run the command on the toy target; returns exit code, standard output and error."""

    def call(*arguments: str, model: str = "toy:dense") -> tuple[int, str, str]:
        return run_command(words(*arguments, model=model)), *capsys.readouterr()

    return call


def words(*arguments: str, model: str = "toy:dense") -> list[str]:
    """The command with these arguments."""
    return ["compare", "-m", model, "--prompts", "prompts.jsonl", "-n", str(N), *arguments]


def summary(answer: tuple[int, str, str]) -> dict[tuple[str, str], dict]:
    """Rows of ``--json`` by contender and family."""
    return {(row["contender"], row["family"]): row for row in json.loads(answer[1])["rows"]}


def results(folder, out: str = "out") -> list[dict]:
    """The records of results.jsonl."""
    lines = [json.loads(line) for line in (folder / out / "results.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "record"]


def test_a_row_for_every_contender_and_family_and_one_over_all(compare):
    rows = summary(compare("--method", "repeat", "--json"))

    assert set(rows) == {(name, f) for name in ("plain", "repeat") for f in ("first", "second", "all")}
    assert [rows["repeat", f]["prompts"] for f in ("first", "second", "all")] == [1, 2, 3]
    assert rows["plain", "all"]["tokens"] == rows["repeat", "all"]["tokens"] == 3 * N


def test_speed_is_measured_against_plain_decoding_of_the_same_run(compare):
    rows = summary(compare("--method", "repeat", "--json"))
    plain, repeat = rows["plain", "all"], rows["repeat", "all"]

    assert plain["speedup"] == 1
    assert repeat["speedup"] == pytest.approx(repeat["rate"] / plain["rate"])
    assert repeat["low"] is None is repeat["high"], "three prompts are too few for an interval"
    assert repeat["efficiency"] == pytest.approx(repeat["speedup"] / repeat["tokens_per_step"])
    assert repeat["overhead"] == pytest.approx(repeat["tokens_per_step"] / repeat["speedup"] - 1)


def test_one_prompt_has_no_interval(compare):
    row = summary(compare("--method", "repeat", "--json"))["repeat", "first"]

    assert (row["low"], row["high"]) == (None, None)


@pytest.mark.parametrize("temperature", ["0", "0.9"])
def test_every_contender_says_the_same_in_every_repeat(compare, folder, temperature):
    """Also at temperatures above 0: the seed of a prompt is the same for all contenders."""
    code, _, _ = compare(
        "--method", "repeat", "--temperature", temperature, "--seed", "4", "--repeats", "2", "--out", "out"
    )
    texts = {}
    for r in results(folder):
        texts.setdefault((r["prompt"], r["seed"]), []).append(r["tokens"])

    assert code == 0
    assert len(texts) == 3, "a seed per prompt"
    assert all(len(t) == 4 and all(x == t[0] for x in t) for t in texts.values())


def test_contenders_take_turns_in_an_order_that_rotates(compare, folder):
    compare("--method", "repeat", "--method", "mute", "--repeats", "2", "--out", "out")
    order = [r["contender"] for r in results(folder)]

    assert [order[i : i + 3] for i in range(0, 9, 3)] == [
        ["plain", "repeat", "mute"],
        ["repeat", "mute", "plain"],
        ["mute", "plain", "repeat"],
    ]
    assert order[9:12] == ["repeat", "mute", "plain"], "the next repeat begins with another"


def test_other_text_shows_no_speed_but_where_it_differs(compare):
    """A wrong text of one prompt removes the speeds of all families of that contender."""
    answer = compare("--method", "liar", "--method", "repeat", "--json")
    rows = summary(answer)

    assert answer[0] == 1
    assert all(rows["liar", f][time] is None for f in ("first", "all") for time in ("rate", "speedup", "low", "whole"))
    assert rows["repeat", "all"]["speedup"] is not None
    assert rows["liar", "all"]["identical"] == 0
    body = json.loads(answer[1])["differences"]
    assert {(d["contender"], d["prompt"], d["position"]) for d in body} == {("liar", p, 4) for p in "abc"}
    assert all(d["gap"] > 0 and d["plain"] != d["other"] for d in body)


def test_a_difference_is_printed_with_its_position_and_gap(compare):
    code, out, _ = compare("--method", "liar")

    assert code == 1
    assert "DIFFERS (3 of 3)" in out
    assert "liar differs on a at output position 4" in out and "apart" in out


def test_a_lossy_run_has_a_label_beside_its_speed(compare):
    answer = compare("--method", "careless", "--json")
    row = summary(answer)["careless", "all"]

    assert answer[0] == 0
    assert row["label"] == "LOSSY: cares not"
    assert row["speedup"] is not None
    assert row["identical"] == 0


def test_the_table_has_no_blanks_at_the_ends_and_shows_what_was_measured(compare):
    _, out, err = compare("--method", "repeat", "--wide")
    lines = out.splitlines()

    assert all(line == line.rstrip() for line in lines)
    for word in (
        "tokens/s",
        "speedup",
        "tokens/step",
        "acceptance",
        "draft length",
        "by position",
        "first token ms",
        "between tokens ms",
        "of bound",
        "identical",
        "repeat",
        "plain",
    ):
        assert word in out
    assert "measured 6 of 6" in err and "measured" not in out


def test_records_carry_every_step(compare, folder):
    compare("--method", "repeat", "--out", "out")
    for r in results(folder):
        steps = r["steps"]
        assert len(r["tokens"]) == N
        assert 1 + sum(steps["emitted"]) == N, "the first token belongs to no step"
        assert len({len(column) for column in steps.values()}) == 1
        assert sum(steps["seconds"]) == pytest.approx(r["decode_seconds"])
        assert all(a <= d <= 3 for a, d in zip(steps["accepted"], steps["drafted"], strict=True))
        assert r["first_seconds"] + r["decode_seconds"] <= r["lap"]["seconds"]


def test_counts_are_those_of_the_records(compare, folder):
    row = summary(compare("--method", "repeat", "--out", "out", "--json"))["repeat", "all"]
    step_counts = [r["steps"] for r in results(folder) if r["contender"] == "repeat"]
    total = {key: sum(sum(steps[key]) for steps in step_counts) for key in ("drafted", "accepted", "emitted")}
    count = sum(len(steps["drafted"]) for steps in step_counts)

    assert row["tokens_per_step"] == total["emitted"] / count
    assert row["acceptance_length"]["per_request"] == pytest.approx(
        sum(sum(s["emitted"]) / len(s["emitted"]) for s in step_counts) / 3
    )
    assert row["draft_acceptance"] == total["accepted"] / total["drafted"]
    assert row["steps"] == count
    assert len(row["marginal"]) == len(row["conditional"]) == 3


def test_plain_decoding_costs_one_forward_per_token(compare):
    rows = summary(compare("--method", "repeat", "--json"))

    assert rows["plain", "all"]["forwards"] == {"target": 1}
    assert rows["repeat", "all"]["forwards"]["target"] == pytest.approx(1 / rows["repeat", "all"]["tokens_per_step"])


def test_the_time_of_a_step_is_split_without_rest(compare):
    split = summary(compare("--method", "repeat", "--json"))["repeat", "all"]["split"]

    assert {"draft", "verify", "accept", "host"} <= set(split)
    assert sum(split.values()) == pytest.approx(1)


def test_the_parts_of_the_steps_are_all_the_time_from_the_first_token_to_the_last(compare, folder):
    """Time between two steps counts as host time."""
    compare("--method", "repeat", "--out", "out")

    for record in results(folder):
        assert sum(record["lap"]["split"].values()) == pytest.approx(record["decode_seconds"])


@pytest.mark.parametrize("batch", ["2", "8"])
def test_prompts_that_run_together_give_the_same_texts(compare, folder, batch):
    compare("--method", "repeat", "--out", "out")
    alone = {(r["contender"], r["prompt"]): r["tokens"] for r in results(folder)}
    code, _, _ = compare("--method", "repeat", "--batch", batch, "--out", "beside")
    together = {(r["contender"], r["prompt"]): r["tokens"] for r in results(folder, "beside")}

    assert code == 0
    assert alone == together
    assert {tuple(r["lap"]["prompts"]) for r in results(folder, "beside")} == {("a",), ("b", "c")}, (
        "families stay apart"
    )


def test_nothing_is_reused_from_one_prompt_to_the_next(compare, folder):
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"id": str(i), "prompt": "SAME TEXT"}) for i in (1, 2)))
    compare("--method", "repeat", "--out", "out")

    assert {r["lap"]["rows"]["target"] for r in results(folder) if r["contender"] == "plain"} == {N - 1}


def test_a_hybrid_target_is_compared_too(compare):
    code, _, err = compare("--method", "repeat", model="toy:hybrid")

    assert code == 0
    assert "toy-rollback" in err


def test_methods_joined_by_plus_are_one_contender(compare):
    rows = summary(compare("--method", "mute+repeat", "--json"))

    assert ("mute + repeat", "all") in rows
    assert rows["mute + repeat", "all"]["draft_acceptance"] is not None


def test_the_summary_carries_what_its_numbers_depend_on(compare, folder):
    compare("--method", "repeat", "-o", "repeat.length=2", "--seed", "7", "--out", "out")
    body = json.loads((folder / "out" / "summary.json").read_text())

    assert (body["device"], body["dtype"], body["seed"], body["batch"], body["repeats"]) == ("cpu", "float64", 7, 1, 1)
    assert body["settings"]["repeat.length"] == {"value": "2", "origin": "flag"}
    assert "torch" in body["environment"]["packages"]


def test_the_summary_says_how_busy_the_machine_was_and_what_is_doubtful(compare, monkeypatch):
    """A constructed load is reported and gives a warning, whatever the load of this machine."""
    moments = (machine.Moment(t, 0.0, 4, 350.0 * t, 2.0) for t in count())
    monkeypatch.setattr(machine, "moment", lambda: next(moments))
    ticks = count()
    monkeypatch.setattr(measure, "clock_now", lambda: measure.Clock(next(ticks), 0.0))
    body = json.loads(compare("--method", "repeat", "--json")[1])
    load = body["load"]

    assert (load["processors"], load["average_before"], load["average_after"]) == (4, 2.0, 2.0)
    assert load["others"] == pytest.approx(350 * 6 / load["seconds"])
    assert [w["text"] for w in body["warnings"] if w["kind"] == "load"] == [
        f"other programs kept {load['others']:.1f} of 4 processors busy during the measurement: "
        "measure again on a quiet machine"
    ]


def test_processor_time_stands_beside_wall_time(compare, folder, monkeypatch):
    """For a process whose clock shows that it had a processor half of the time."""
    wall = iter(range(10**6))
    monkeypatch.setattr(measure, "clock_now", lambda: measure.Clock(float(t := next(wall)), t / 2))
    row = summary(compare("--method", "repeat", "--out", "out", "--json"))["repeat", "all"]

    assert all(r["cpu_seconds"] == r["decode_seconds"] / 2 > 0 for r in results(folder))
    assert all(r["lap"]["cpu_seconds"] == r["lap"]["seconds"] / 2 > 0 for r in results(folder))
    assert (row["cpu_rate"], row["cpu_speedup"]) == (2 * row["rate"], row["speedup"])


def test_a_plugin_that_fails_ends_the_comparison_with_a_message(compare):
    code, out, err = compare("--method", "broken")

    assert code == 1
    assert "broken" in err and "Traceback" not in err
    assert not out


MISTAKES = {
    "unknown method": (["--method", "repat"], "repeat"),
    "unknown family": (["--family", "third"], "second"),
    "a setting nobody uses": (["--method", "repeat", "-o", "mute.x=1"], "mute is not used in this run"),
    "no such prompts": (["--prompts", "absent.jsonl"], "absent.jsonl"),
    "a place that cannot be written": (["-n", "2", "--out", "prompts.jsonl"], "cannot be written"),
    "a method twice": (["--method", "repeat", "--method", "repeat"], "--method repeat was passed 2 times"),
    "context too small": (["--context", "6"], "prompt 'b' has 10 tokens"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_with_exit_code_2(compare, name):
    arguments, message = MISTAKES[name]
    code, out, err = compare(*arguments)

    assert code == 2
    assert message in err and "Traceback" not in out + err


LINES = {
    "no JSON": ('{"prompt": "x"}\n{"prompt": "y"', "line 2 is not valid JSON: Expecting ',' delimiter at column"),
    "both": ('{"prompt": "x", "tokens": [1]}', "prompt and tokens are both set"),
    "no prompt": ('{"id": "a"}', "line 1"),
    "no object": ("[]", "line 1"),
    "a number": ('{"prompt": 5}', "not a text"),
    "nothing": ("\n\n", "no prompts"),
    "twice": ('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}', "'a'"),
    "deep": ("[" * 100_000, "line 1 is not valid JSON"),
    "empty prompt": ('{"id": "a", "prompt": ""}', "0 tokens"),
}


@pytest.mark.parametrize("name", LINES)
def test_prompts_that_are_none_are_refused_with_their_line(compare, folder, name):
    content, message = LINES[name]
    (folder / "prompts.jsonl").write_text(content)
    code, _, err = compare()

    assert code == 2
    assert message in err


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(compare):
    code, _, err = compare("--limit", "1", "-n", "2", "--out", "prompts.jsonl")

    assert code == 2
    assert "prompts.jsonl cannot be written: Not a directory" in err
    assert "measured" not in err


def test_an_interrupted_comparison_keeps_the_laps_that_were_finished(compare, folder, monkeypatch):
    laps, real = [], measure.lap

    def lap(*arguments):
        if len(laps) == 3 + 2:  # both warm up first
            raise KeyboardInterrupt
        laps.append(real(*arguments))
        return laps[-1]

    monkeypatch.setattr(measure, "lap", lap)
    code, _, err = compare("--method", "repeat", "--out", "out")

    assert (code, len(results(folder))) == (130, 3)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--seed", "5"], "seed was 0 and is 5"),
        (["--method", "repeat", "-o", "repeat.length=2"], "repeat: setting repeat.length was 3 and is 2"),
        (["--repeats", "2"], "repeats was 1 and is 2"),
        (["--temperature", "0.5"], "plain: setting temperature was 0.0 and is 0.5"),
        (["--family", "first"], "prompts was"),
        (["--batch", "2"], "batch was 1 and is 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_results_of_another_comparison_are_never_written_over(compare, folder, changed, message):
    """Not even those of an interrupted comparison; the refusal names what changed, and nothing is measured."""
    command = ["--method", "repeat", "--limit", "1", "-n", "2", "--out", "out"]
    compare(*command)
    before = (folder / "out" / "results.jsonl").read_bytes()
    (folder / "out" / "summary.json").unlink()
    method = changed if "--method" in changed else ["--method", "repeat", *changed]
    code, _, err = compare(*method, "--limit", "1", "-n", "2", "--out", "out")

    assert code == 2
    assert message in err and "another directory" in err and "measured" not in err
    assert (folder / "out" / "results.jsonl").read_bytes() == before


def test_limit_is_per_family(compare):
    rows = summary(compare("--limit", "1", "--json"))

    assert [rows["plain", f]["prompts"] for f in ("first", "second", "all")] == [1, 1, 2]


def test_a_model_of_the_zoo_brings_its_prompts_and_its_draft_model(folder, capsys):
    methods = ["--method", "ngram", "--method", "draft-model", "--method", "ngram+draft-model"]
    code = run_command(["compare", "-m", "zoo:pico", *methods, "-n", "8", "--limit", "1", "--threads", "1", "--json"])
    body = json.loads(capsys.readouterr().out)

    assert code == 0
    assert len({row["family"] for row in body["rows"]}) == 5
    assert {row["contender"] for row in body["rows"]} == {"plain", "ngram", "draft-model", "ngram + draft-model"}
    assert all(row["identical"] == row["prompts"] and row["speedup"] for row in body["rows"])


def test_a_chat_is_compared_in_the_format_of_its_model(folder):
    """Messages, token ids, and texts with --chat: every contender gets the prompt after the template."""
    hi = {"role": "user", "content": "hi"}
    forms = [{"id": "chat", "messages": [hi]}, {"id": "ids", "tokens": [1, 2, 3]}]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, forms)))
    (folder / "texts.jsonl").write_text(json.dumps({"id": "text", "prompt": "hi"}))
    model = ["compare", "-m", "zoo:pico", "--method", "ngram", "-n", "4", "--threads", "1"]

    assert run_command([*model, "--prompts", "prompts.jsonl", "--out", "out"]) == 0
    assert run_command([*model, "--prompts", "texts.jsonl", "--chat", "--out", "chat"]) == 0
    prompt_tokens = {r["prompt"]: r["prompt_tokens"] for out in ("out", "chat") for r in results(folder, out)}
    words = load("zoo:pico").tokenizer
    length = len(words.encode_chat([hi]))
    assert prompt_tokens == {"chat": length, "ids": 3, "text": length}
    assert length > len(words.encode("hi"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"tokens": [1]}', "--chat needs texts"),
        ('{"id": "x", "prompt": "A"}', "prompt 'x': toy-0 has no chat template"),
    ],
    ids=["ids", "no-template"],
)
def test_chat_that_cannot_be_is_refused(compare, folder, line, message):
    (folder / "prompts.jsonl").write_text(line)
    code, _, err = compare("--chat")

    assert code == 2
    assert message in err
