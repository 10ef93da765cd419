"""What a user sees on a terminal, rendered from a pseudo-terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from time import sleep

import pytest

pytest.importorskip("pyte", reason="renders a terminal")

from spec_cli.watch import Prefill

from tests.support.terminal import Terminal, run


def test_progress_erases_nothing_of_the_text(slow):
    arguments = ["generate", "-m", "zoo:pico", "-p", "def add(a, b):\n", "-n", "16", "-o", "prefill_chunk=64"]
    shown = run(*arguments, "--method", "slow", PYTHONPATH=slow)
    plain = subprocess.run([sys.executable, "-m", "spec_core", *arguments], capture_output=True, text=True)

    text = [line.rstrip() for line in plain.stdout.splitlines()]
    assert shown.process.returncode == 0
    assert shown.screen()[: len(text)] == text
    assert len(re.findall(rb"\r +\r", shown.data)) == 1  # the line of loading, before the text


def test_loading_is_shown_by_the_name_that_was_written_and_removed():
    shown = run("generate", "-m", "zoo:pico", "--method", "best", "-p", "a", "-n", "1")
    assert shown.data.startswith(b"\rloading zoo:pico")
    assert not any("loading" in line for line in shown.screen())


def test_an_error_while_loading_takes_the_place_of_its_line():
    shown = run("generate", "-m", "zoo:pico", "--method", "eagle3=missing.gguf", "-p", "a")
    assert b"loading zoo:pico" in shown.data
    assert shown.screen()[0].startswith("error: ")
    assert not any("loading" in line for line in shown.screen())


def test_progress_of_a_prompt_is_removed_before_the_text(slow):
    prompt = "x = 1\n" * 60
    arguments = ["generate", "-m", "zoo:pico", "-p", prompt, "-n", "8", "-o", "prefill_chunk=16"]
    shown = run(*arguments, "--method", "slow", PYTHONPATH=slow)
    plain = subprocess.run([sys.executable, "-m", "spec_core", *arguments], capture_output=True, text=True)

    text = [line.rstrip() for line in plain.stdout.splitlines()]
    assert b"prompt: " in shown.data, shown.data
    assert not any("prompt: " in line for line in shown.screen())
    assert shown.screen()[: len(text)] == text


def test_several_prompts_are_not_written_over(slow, tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "def add(a, b):\\n"}\n{"prompt": "' + "import os\\n" * 120 + '"}\n', "utf-8")
    arguments = ["generate", "-m", "zoo:pico", "--prompts", str(file), "-n", "8", "-o", "prefill_chunk=16"]
    shown = run(*arguments, "--method", "slow", PYTHONPATH=slow)
    plain = subprocess.run([sys.executable, "-m", "spec_core", *arguments], capture_output=True, text=True)

    expected = [line.rstrip() for line in plain.stdout.splitlines() if line.strip()]
    lines = shown.screen()
    assert all(line in lines for line in expected)


def test_ctrl_c_says_what_was_measured(slow):
    arguments = ["generate", "-m", "zoo:pico", "-p", "x", "-n", "500", "--ignore-eos", "--method", "slow"]
    terminal = Terminal(*arguments, PYTHONPATH=slow)
    terminal.read(until=b"=", seconds=30)
    sleep(1)
    terminal.interrupt()
    terminal.read(seconds=20)

    assert terminal.process.wait(20) == 130
    assert any(line.startswith("interrupted after ") and "tokens/s" in line for line in terminal.screen())
    assert b"Traceback" not in terminal.data


def test_ctrl_c_of_a_comparison_says_that_nothing_is_kept(slow):
    arguments = ["compare", "-m", "zoo:pico", "--method", "slow", "-n", "16", "--limit", "2", "--no-bounds"]
    terminal = Terminal(*arguments, PYTHONPATH=slow)
    terminal.read(until=b"at most 16 tokens each", seconds=60)
    sleep(2)
    terminal.interrupt()
    terminal.read(seconds=30)

    assert terminal.process.wait(30) == 130
    text = "".join("".join(terminal.screen()).split())
    assert "lapsweremeasured,noneiskept;--outDIRkeepsandcontinuesthem" in text
    assert b"Traceback" not in terminal.data


def test_a_comparison_leaves_no_bar_on_the_terminal():
    terminal = run("compare", "-m", "zoo:pico", "--method", "ngram", "-n", "8", "--limit", "1", "--no-bounds")

    assert terminal.process.returncode == 0
    assert not any("━" in line for line in terminal.screen())
    assert any("ngram" in line for line in terminal.screen())


@pytest.mark.repeats(1)
@pytest.mark.parametrize(("asked", "message"), [("100000", "(the context of 2048 tokens is full)"), ("4", "(-n 4)")])
def test_the_limit_that_ended_a_text_is_named(asked, message):
    arguments = ["generate", "-m", "zoo:pico", "-p", "x", "-n", asked, "--ignore-eos", "--method", "ngram"]
    done = subprocess.run([sys.executable, "-m", "spec_core", *arguments], capture_output=True, text=True)

    assert f"finished by length {message}" in done.stderr


class Sequence:
    def __init__(self, prompt_len, evaluated):
        self.prompt_len, self.evaluated = prompt_len, evaluated


class Part:
    def __init__(self, emitted):
        self.emitted = emitted


class Step:
    def __init__(self, *emitted):
        self.parts = [Part(one) for one in emitted]


def test_only_what_was_written_is_erased(capfd):
    seq, clock = Sequence(100, 0), iter([0.0, *([5.0] * 9)])
    progress = Prefill([seq], True, now=lambda: next(clock))
    seq.evaluated = 50
    progress.look(Step([]))
    seq.evaluated = 100
    progress.look(Step([1]))
    progress.look(Step([1]))

    line = "prompt: 50 of 100 tokens"
    assert capfd.readouterr().err == f"\r{line}\r{' ' * len(line)}\r"


def test_nothing_is_erased_where_nothing_was_written(capfd):
    seq, clock = Sequence(10, 10), iter([0.0, *([5.0] * 9)])
    progress = Prefill([seq], True, now=lambda: next(clock))
    progress.look(Step([1]))
    progress.look(Step([1]))

    assert capfd.readouterr().err == ""
