"""Streams a text to standard output, and marks the method that drafted each token."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from spec_commands import common
from spec_commands.printing import escape_controls

if TYPE_CHECKING:
    from spec_core import Emitted

COLOURS = ("green", "cyan", "yellow", "magenta", "blue", "bright_green", "bright_cyan", "bright_yellow")
BRACKETS = ("[]", "{}", "<>", "()", "«»", "‹›", "⟦⟧", "⟨⟩")
REST = "the rest is the target's own choice"

Show = Callable[["Emitted"], None]


def print_nothing(event: Emitted) -> None:
    """Print nothing."""


def print_text(event: Emitted) -> None:
    """Print the text as it is generated."""
    if event.text:
        sys.stdout.write(printable_text(event.text))
        sys.stdout.flush()


def printable_text(text: str) -> str:
    """The text itself; on a terminal, without characters that command it."""
    return escape_controls(text) if common.is_terminal(sys.stdout) else text


def drafts(methods: Iterable[str]) -> Show:
    """Print the tokens of each method in its own colour, or brackets without colours; the legend is a note."""
    marks = _colours(methods) if has_colours() else _brackets(methods)
    legend = ", ".join(mark(escape_controls(name)) for name, mark in marks.items())
    summary = (
        f"proposed by {legend}; {REST}" if legend else "no method drafts in this run; every token is the target's own"
    )
    click.echo(summary, err=True)  # it has colours

    def show(event: Emitted) -> None:
        mark = marks.get(event.source or "")
        if event.text:
            sys.stdout.write(mark(printable_text(event.text)) if mark else printable_text(event.text))
            sys.stdout.flush()

    return show


def has_colours() -> bool:
    """Whether standard output is a terminal with colours, and NO_COLOR is not set (https://no-color.org)."""
    return common.is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def _colours(methods: Iterable[str]) -> dict[str, Callable[[str], str]]:
    return {name: _colour(COLOURS[i % len(COLOURS)]) for i, name in enumerate(methods)}


def _colour(colour: str) -> Callable[[str], str]:
    return lambda text: click.style(text, fg=colour)


def _brackets(methods: Iterable[str]) -> dict[str, Callable[[str], str]]:
    return {name: _bracket(*BRACKETS[i % len(BRACKETS)]) for i, name in enumerate(methods)}


def _bracket(left: str, right: str) -> Callable[[str], str]:
    return lambda text: f"{left}{text}{right}"
