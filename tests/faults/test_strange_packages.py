"""Packages of strangers: the package is named, and everything else works."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spec_core import PluginError, Run, RunSettings, hookimpl, load

NAME = "Metadata-Version: 2.1\nName: twin\nVersion: 1.0\n"
TWICE = "[spec_core.methods]\nngram = twin:M\n"
QUITS = TWICE.replace("ngram", "quits")
PACKAGES = {
    # metadata, entry points, module, method, what is message, whether the command works
    "no-equals-sign": (NAME, "[x]\noops\n", "", "suffix", "'twin' cannot be read", True),
    "no-utf-8": (NAME, b"[x]\n\xff = a:b\n", "", "suffix", "'twin' cannot be read", True),
    "no-section": (NAME, "a = b:c\noops\n", "", "suffix", "", True),
    "no-name": ("", "[x]\noops\n", "", "suffix", "'twin' cannot be read", True),
    "name-twice": (NAME, TWICE, "", "ngram", "pip uninstall twin", False),
    "exit-at-import": (NAME, QUITS, "raise SystemExit(3)", "quits", "method 'quits' of twin 1.0", False),
    "exit-of-another": (NAME, QUITS, "raise SystemExit(3)", "suffix", "", True),
}  # fmt: skip


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_of_a_stranger_is_named(name, tmp_path):
    metadata, points, module, method, message, works = PACKAGES[name]
    folder = tmp_path / "twin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata, "utf-8")
    (folder / "entry_points.txt").write_bytes(points if isinstance(points, bytes) else points.encode())
    (tmp_path / "twin.py").write_text(module, "utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    command = [
        sys.executable,
        "-m",
        "spec_core",
        "generate",
        "-m",
        "zoo:pico",
        "--method",
        method,
        "-p",
        "x",
        "-n",
        "4",
    ]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)

    assert "Traceback" not in done.stderr and message in done.stderr, done.stderr
    assert done.returncode == (0 if works else 2)
    assert bool(done.stdout.strip()) == works


def change(name):
    """A method that changes the tokens of a sequence in this way."""

    class Edits:
        @hookimpl
        def draft(self, step):
            for seq, _ in step.undrafted:
                CHANGES[name](seq.tokens)

    return Edits()


CHANGES = {
    "append": lambda tokens: tokens.append(3),
    "extend": lambda tokens: tokens.extend([3]),
    "item": lambda tokens: tokens.__setitem__(0, 3),
    "delete": lambda tokens: tokens.__delitem__(0),
    "add": lambda tokens: tokens.__iadd__([3]),
    "sort": lambda tokens: tokens.sort(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_method_that_changes_the_tokens_is_named_and_the_text_is_plain(name):
    target, prompt = load("zoo:pico"), "def add(a, b):\n"
    plain = Run(target).generate(prompt, max_tokens=6).result.tokens

    with pytest.raises(PluginError, match="the core's own list cannot be changed by a plugin"):
        Run(target, methods=[change(name)]).generate(prompt, max_tokens=6).result
    isolated = Run(target, methods=[change(name)], settings=RunSettings(on_error="isolate"))
    assert isolated.generate(prompt, max_tokens=6).result.tokens == plain


class Quits:
    @hookimpl
    def draft(self, step):
        sys.exit(3)


class QuitsLater:
    @hookimpl
    def process(self, rows):
        raise SystemExit("enough")


@pytest.mark.parametrize("method", [Quits, QuitsLater])
def test_a_hook_that_ends_the_program_ends_the_method(method):
    target = load("zoo:pico")
    plain = Run(target).generate("x", max_tokens=6).result.tokens

    with pytest.raises(PluginError, match=r"called sys.exit\((3|enough)\)"):
        Run(target, methods=[method()]).generate("x", max_tokens=6).result
    isolated = Run(target, methods=[method()], settings=RunSettings(on_error="isolate"))
    assert isolated.generate("x", max_tokens=6).result.tokens == plain
