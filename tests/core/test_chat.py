"""``spec chat``: as a program that reads lines, and on a terminal."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from spec_core import Request, Run, Sampling, load

CHAT = ("chat", "-m", "zoo:pico", "--method", "ngram", "-n", "24", "--threads", "1")


def talk(*lines, flags=()):
    """(standard output, standard error, exit code) of a conversation; lines are texts or bytes."""
    data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    command = [sys.executable, "-m", "spec_core", *CHAT, *flags]
    done = subprocess.run(command, input=data, capture_output=True, timeout=120)
    return done.stdout.decode(), done.stderr.decode(), done.returncode


def answer(messages, seed=0, temperature=0.0):
    with Run("zoo:pico", []) as run:
        sampling = Sampling(temperature=temperature)
        return run.generate(Request(messages, max_tokens=24, seed=seed, sampling=sampling)).text


def user(text):
    return {"role": "user", "content": text}


def model(text):
    return {"role": "assistant", "content": text}


def test_answers_follow_the_whole_conversation():
    first = answer([user("def add(a, b):")])
    second = answer([user("def add(a, b):"), model(first), user("x = 1")])
    out, err, code = talk("def add(a, b):", "x = 1")
    assert (out, code) == (f"{first}\n{second}\n", 0)
    assert len(re.findall("^[0-9]+ tokens, (cut at the limit|ended)", err, re.M)) == 2


def test_a_system_prompt_comes_first_and_begins_a_new_conversation():
    system = {"role": "system", "content": "Write Python."}
    expected = answer([system, user("x = 1")])
    assert talk("x = 1", flags=["--system", "Write Python."])[0] == f"{expected}\n"
    out, err, _ = talk("y = 2", "/system Write Python.", "x = 1")
    assert out.endswith(f"{expected}\n")
    assert "a new conversation" in err


@pytest.mark.repeats(1)
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_plain_generates_the_same_text_without_drafts(temperature):
    out, err, _ = talk("x = 1\nx = 1\nx = 1\nx =".replace("\n", " "), "/plain", flags=["--temperature", temperature])
    half = len(out) // 2
    assert out[:half] == out[half:]
    assert re.search(r"the same text; with drafts [\d.]+ tokens/s, without [\d.]+: [\d.]+ times", err)
    assert "drafted accepted" not in err.splitlines()[1]


@pytest.mark.parametrize(
    ("options", "temperature", "expected"),
    [({}, 0.8, False), ({"rule": "rejection"}, 0.0, False), ({"rule": "rejection"}, 0.8, True)],
)
def test_texts_may_differ_where_rule_or_target_say_so(options, temperature, expected):
    from spec_cli.chat import Chat
    from spec_cli.conversation import Conversation

    request = Request([], sampling=Sampling(temperature=temperature))
    with Run(load("zoo:pico", threads=1), ["draft-model=zoo:pico-draft"], **options) as run:
        assert Chat(run, Conversation(run, request)).may_differ is expected


def test_another_text_is_reported_where_none_may_be():
    from spec_cli.chat import compare_answers
    from spec_cli.conversation import Answer

    one, other = (Answer("", tokens, 0, "stop", {"tokens_per_second": 2.0}, {}) for tokens in ([1, 2], [1, 3]))
    assert compare_answers(one, other, may_differ=False).startswith("ANOTHER TEXT: please report it; with drafts 2.0")
    assert compare_answers(one, other, may_differ=True).startswith("another text, as may be")
    assert compare_answers(one, one, may_differ=False).startswith("the same text")


def test_again_takes_the_place_of_the_last_answer():
    again = answer([user("def add(a, b):")], seed=1, temperature=0.8)
    follows = answer([user("def add(a, b):"), model(again), user("x = 1")], temperature=0.8)
    out, *_ = talk("def add(a, b):", "/again", "x = 1", flags=["--temperature", "0.8"])
    assert out.endswith(f"{again}\n{follows}\n")


def test_edit_takes_the_place_of_the_last_message():
    expected = answer([user("x = 1")], seed=1)
    assert talk("def add(a, b):", "/edit x = 1")[0].endswith(f"\n{expected}\n")


@pytest.mark.repeats(2)
@pytest.mark.parametrize("command", ["/again", "/plain", "/edit x", "/stats"])
def test_commands_that_need_an_answer_say_so(command):
    out, err, code = talk(command)
    assert (out, err, code) == ("", "error: there is no answer yet\n  write a message first\n", 0)


def test_a_wrong_command_names_the_commands():
    out, err, _ = talk("/agian")
    assert out == ""
    assert err.startswith("error: there is no command /agian\n")
    assert "/again" in err


def test_a_message_that_does_not_fit_is_not_kept():
    out, err, code = talk("x = 1 " * 3000, "def add(a, b):")
    assert err.startswith("error: ")
    assert (out, code) == (answer([user("def add(a, b):")]) + "\n", 0)


def test_bytes_that_are_not_utf8_are_replaced():
    out, _, code = talk(b"caf\xe9 \xff")
    assert (out, code) == (answer([user("caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}")]) + "\n", 0)


def test_statistics_are_of_the_last_answer():
    _, err, _ = talk("x = 1", "/stats")
    assert re.search(r"^emitted +\d+$", err, re.M)
    assert re.search(r"^tokens_per_second +[\d,.]+$", err, re.M)


def test_help_lists_every_command():
    from spec_cli.chat import COMMANDS

    _, err, _ = talk("/help")
    assert [line.split()[0] for line in err.splitlines()] == list(COMMANDS)
    assert all(len(line.split()) > 2 for line in err.splitlines())


def test_a_model_without_a_template_is_refused_before_its_weights(tmp_path):
    from tests.support.hugging_face import directory

    bare = directory("zoo:pico")
    settings = json.loads((bare / "tokenizer_config.json").read_text("utf-8"))
    settings.pop("chat_template", None)
    (bare / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "spec_core", "chat", "-m", str(bare)], input=b"x\n", capture_output=True, timeout=120
    )
    assert done.returncode == 2
    assert "has no chat template" in done.stderr.decode()


pyte = pytest.importorskip("pyte", reason="renders a terminal")
pytest.importorskip("prompt_toolkit", reason="edits lines")


def open_chat(*flags, columns=80, **variables):
    from tests.support.terminal import Terminal

    shown = Terminal("chat", "-m", "zoo:pico", *flags, columns=columns, PROMPT_TOOLKIT_NO_CPR="1", **variables)
    wait_for_prompts(shown, 1)
    return shown


def wait_for_prompts(shown, count):
    """Read until the line editor has asked for a line so many times."""
    for _ in range(300):
        if shown.data.count(b"\x1b[?2004h") >= count:
            return
        shown.read(seconds=0.1)
    raise AssertionError(shown.data)


@pytest.mark.parametrize("columns", [80, 40])
def test_a_conversation_on_a_terminal(columns):
    shown = open_chat("--method", "ngram", "-n", "24", columns=columns)
    shown.write("日本 = 'é'\r")
    wait_for_prompts(shown, 2)
    shown.resize(60)
    shown.write("/plain\r")
    wait_for_prompts(shown, 3)
    shown.write("\x04")
    shown.read()
    assert shown.process.wait(30) == 0
    shown.columns = 400  # lines as they were written
    lines = shown.screen()
    assert any("日" in line for line in lines)
    assert any(line.startswith("the same text; with drafts ") for line in lines)
    assert not any("loading" in line for line in lines)


def test_ctrl_c_ends_an_answer_or_a_line_and_not_the_program(slow):
    shown = open_chat("--method", "slow", PYTHONPATH=slow)
    shown.write("half a line\x03")
    wait_for_prompts(shown, 2)
    assert b"Ctrl-D or /quit" in shown.data
    shown.write("def add(a, b):\r")
    shown.read(seconds=0.8)
    shown.interrupt()
    wait_for_prompts(shown, 3)
    shown.write("/quit\r")
    shown.read()
    assert shown.process.wait(30) == 0
    assert b"tokens, interrupted" in shown.data
