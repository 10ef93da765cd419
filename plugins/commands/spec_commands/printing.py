"""Text for a terminal: characters that command it are shown, whoever wrote the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.text import Text

COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, marks that change the direction of a line, and halves of surrogates."""


def escape_controls(text: str) -> str:
    """A text whose control characters are written as escapes, as in Python."""
    return COMMANDS.sub(lambda match: f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else escape(match[0]), text)


def escape(character: str) -> str:
    """A character as JSON and Python write it."""
    return f"\\u{ord(character):04x}"


def json_safe(text: str) -> str:
    """JSON whose control characters are escapes; it stands for the same value."""
    return COMMANDS.sub(lambda match: escape(match[0]), text)


def print_line(text: Any = "", err: bool = False) -> None:
    """Print a line, in the place of the passing one if there is one."""
    PASSING.clear()
    click.echo(escape_controls(str(text)), err=err)


class PassingLine:
    """A line of standard error that lasts until the next one is printed. width: its characters, 0 without a line."""

    width = 0

    def show(self, text: str) -> None:
        """Print a line in the place of the last one. Only for terminals."""
        text = escape_controls(text)
        click.echo(f"\r{text:{self.width}}", nl=False, err=True)
        self.width = max(self.width, len(text))

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self.width:
            click.echo(f"\r{'':{self.width}}\r", nl=False, err=True)
            self.width = 0


PASSING = PassingLine()
"""The one line of the terminal that this process may remove."""


def text_of(text: Any, style: str = "") -> Text:
    """A text for a table or a line of rich."""
    from rich.text import Text

    return Text(escape_controls(str(text)), style=style)
