"""Pages of the documentation as a reader follows them: files are written, commands run, outputs compared."""

from __future__ import annotations

import doctest
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, Protocol

import attrs
import click
from spec_cli.main import cli

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
LANGUAGES = {"python", "sh", "text", "toml", "json", "yaml"}
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@attrs.frozen
class Block:
    """A fenced block: language, text, first line number, and the file that its first line names, if any."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        match = NAME.match(self.text)
        return match["name"] if match else None


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    for fence in FENCE.finditer(text):
        yield Block(fence[1], fence[2], text.count("\n", 0, fence.start()) + 1)


def follow(page: Path, reader: Reader, folder: Path) -> None:
    """Do what a page says, in an empty folder.

    A block whose first line is ``# NAME.EXT`` is a file; other ``python`` and ``sh`` blocks are run; a ``text`` block
    is what the block before it prints, ``...`` stands for anything; another one after it is a figure.
    """
    printed: str | None = None
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: nobody runs {block.language}"
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, "utf-8")
        elif block.language == "sh":
            printed = reader.shell(block.text, folder)
        elif block.language == "python":
            printed = reader.python(block.text, folder)
        elif block.language == "text" and printed is not None:
            assert doctest.OutputChecker().check_output(block.text, printed, SAME), f"{where} prints\n{printed}"
            printed = None


class Reader(Protocol):
    """Runs the blocks of a page; both methods return standard output, or None if there is none to compare."""

    def shell(self, script: str, cwd: Path) -> str | None: ...

    def python(self, source: str, cwd: Path) -> str | None: ...


@attrs.define
class Skimmer:
    """Runs the Python of a page here, block after block in one namespace; of commands it only sees that they exist."""

    names: dict[str, Any] = attrs.field(factory=lambda: {"__name__": "page"})

    def python(self, source: str, cwd: Path) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed), chdir(cwd):
            exec(compile(source, "page", "exec"), self.names)
        return printed.getvalue()

    def shell(self, script: str, cwd: Path) -> None:
        for line in script.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["spec"]:
                check_understood(words[1:])


def check_understood(words: list[str]) -> None:
    """Raise the program's error for a command with an unknown name or option."""
    name, command, rest = cli.resolve_command(click.Context(cli), words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, command, rest = command.resolve_command(click.Context(command), rest)
    command.make_context(name, list(rest))
