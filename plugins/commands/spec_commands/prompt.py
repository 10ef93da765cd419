"""Reads a prompt: a text, a file, token ids, messages, or standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spec_commands.common import token_ids
from spec_core.errors import UsageError, error_message

if TYPE_CHECKING:
    from spec_core import Target

Messages = list[dict[str, Any]]
FLAGS = {"prompt": "-p", "file": "-f", "tokens": "--tokens", "messages": "--messages"}
"""Parameters that hold a prompt, and the flag of each."""
EXAMPLE = 'write [{"role": "user", "content": "..."}]'

OPTIONS = [
    click.option("-p", "--prompt", help="The prompt."),
    click.option("-f", "--file", help="File with the prompt; - is standard input."),
    click.option("--tokens", help="The prompt as token ids: 1,2,3."),
    click.option("--chat", is_flag=True, help="Apply the model's chat template to the prompt, as a user message."),
    click.option("--messages", help="A JSON file of messages for the chat template."),
]


def prompt_from(prompt: str | None, file: str | None, tokens: str | None, chat: bool, messages: str | None) -> Any:
    """The prompt from the flag that was passed: text, ids, or Messages. Raises UsageError for no prompt, or for two."""
    values = {"prompt": prompt, "file": file, "tokens": tokens, "messages": messages}
    places = [FLAGS[name] for name, value in values.items() if value is not None]
    if len(places) > 1:
        raise UsageError(f"the prompt was passed by {' and '.join(places)}", hint="pass it once")
    if tokens is not None:
        if chat:
            raise UsageError("--chat needs a text, but --tokens was passed", hint="leave one of them out")
        return token_ids(tokens)
    if messages is not None:
        return read_messages(messages)
    text = prompt if prompt is not None else read_text(_file(file))
    return [{"role": "user", "content": text}] if chat else text


def _file(file: str | None) -> str:
    if file is None and sys.stdin.isatty():
        raise UsageError("no prompt was passed", hint="pass -p TEXT, -f FILE, --tokens IDS, or pipe a text in")
    return file or "-"


def tokens_of(prompt: Any, target: Target) -> list[int]:
    """Token ids of a prompt, with the checks of a request. Raises UsageError."""
    from spec_core import Request
    from spec_core.commands import prompt_tokens

    return prompt_tokens(Request(prompt), target)


def read_text(path: str) -> str:
    """A file's text, or standard input for ``-``. Raises UsageError if it cannot be read or is not UTF-8."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        name = "standard input" if path == "-" else path
        raise UsageError(
            f"{name}: byte {error.start} is not UTF-8 ({error.reason})", hint="convert the text to UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error_message(error)}", hint="pass a readable file") from error


def read_messages(path: str) -> Messages:
    """Messages of a JSON file. Raises UsageError if it is not a list of messages."""
    try:
        messages = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {str(error)[:80]}", hint=EXAMPLE) from error
    return check_messages(path, messages, EXAMPLE)


def check_messages(where: str, messages: Any, example: str) -> Messages:
    """The messages, checked. Raises UsageError with the example as its hint."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise UsageError(f"{where} is not a list of messages", hint=example)
    if not messages:
        raise UsageError(f"{where} has no messages", hint=example)
    return messages
