"""Prompts of a JSONL file: texts, messages for the chat template, or token ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from spec_commands.prompt import check_messages
from spec_core.errors import UsageError, error_message

EXAMPLE = (
    'write lines of {"id": "1", "family": "edit", "prompt": "..."}; '
    'instead of "prompt": "messages": [{"role": "user", "content": "..."}], or "tokens": [1, 2, 3]'
)
FORMS = ("prompt", "messages", "tokens")
TURNS = "turns"
IDS = ("id", "question_id", "task_id")
"""Names of a prompt's id; the others are Spec-Bench's and HumanEval's."""
FAMILIES = ("family", "category")
"""Names of a prompt's family; the other is that of Spec-Bench and SPEED-Bench."""


@attrs.frozen
class Prompt:
    """One text to continue. given: a text, messages, or token ids, as ``Request.prompt`` takes them."""

    id: str
    family: str
    given: Any

    def seed(self, base: int) -> int:
        """A seed for this prompt, so that the draws of two prompts are not correlated."""
        digest = hashlib.blake2b(f"{base}/{self.id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def json_lines(path: Path, hint: str) -> list[tuple[int, str]]:
    """Non-empty lines of a JSONL file, with their numbers from 1. Raises UsageError with this hint."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # a JSON string may contain other line separators
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error_message(error)}", hint=hint) from error
    return [(i, line) for i, line in enumerate(lines, 1) if line.strip()]


def read_prompt_file(path: Path, chat: bool = False, forms: Sequence[str] = FORMS) -> list[Prompt]:
    """Prompts of a file. Raises UsageError naming the line that is wrong.

    chat: texts become user messages. forms: allowed names of a line's prompt; ``turns`` is the first of a conversation.
    """
    prompts = [_prompt(path, i, line, forms) for i, line in json_lines(path, "pass a JSONL file of prompts")]
    if not prompts:
        raise UsageError(f"{path} has no prompts", hint=EXAMPLE)
    check_ids(path, prompts)
    return as_messages(path, prompts) if chat else prompts


def as_messages(path: Path, prompts: list[Prompt]) -> list[Prompt]:
    """Texts as user messages. Raises UsageError for token ids."""
    return [_as_message(path, p) for p in prompts]


def _as_message(path: Path, prompt: Prompt) -> Prompt:
    if isinstance(prompt.given, str):
        return attrs.evolve(prompt, given=[{"role": "user", "content": prompt.given}])
    if isinstance(prompt.given[0], int):
        raise UsageError(
            f"{path.name}: --chat needs texts, but prompt {prompt.id!r} has token ids",
            hint="leave --chat out, or write this prompt as a text",
        )
    return prompt


def _prompt(path: Path, number: int, line: str, forms: Sequence[str]) -> Prompt:
    where = f"{path.name}, line {number}"
    entry = parse_line(where, line, EXAMPLE)
    names = [name for name in forms if isinstance(entry, dict) and name in entry]
    if len(names) != 1:
        raise UsageError(f"{where}: {' and '.join(names) + ' are both set' if names else 'no prompt'}", hint=EXAMPLE)
    prompt = CHECKS[names[0]](where, entry[names[0]])
    name, family = _first(entry, IDS, number), _first(entry, FAMILIES, "all prompts")
    return Prompt(str(name), str(family), prompt)


def _first(entry: dict[str, Any], names: Iterable[str], default: Any) -> Any:
    return next((entry[name] for name in names if name in entry), default)


def parse_line(where: str, line: str, example: str) -> Any:
    """A line of JSON. Raises UsageError with the example as its hint."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        at = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        problem = getattr(error, "msg", None) or str(error)
        raise UsageError(f"{where} is not valid JSON: {problem[:80]}{at}", hint=example) from error


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: the prompt is not a text", hint=EXAMPLE)
    return value


def _messages(where: str, value: Any) -> Any:
    return check_messages(where, value, EXAMPLE)


def _tokens(where: str, tokens: Any) -> list[int]:
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
        raise UsageError(f"{where}: tokens must be a list of token ids", hint=EXAMPLE)
    return tokens


def _first_turn(where: str, turns: Any) -> Any:
    """The first turn of a conversation, as messages: those after it need answers."""
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        raise UsageError(f"{where}: turns must be a list of texts", hint=EXAMPLE)
    return [{"role": "user", "content": turns[0]}]


CHECKS = {"prompt": _text, "messages": _messages, "tokens": _tokens, TURNS: _first_turn}


def check_ids(path: Path, prompts: Sequence[Prompt]) -> None:
    """Raise UsageError for an id that occurs twice."""
    seen = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UsageError(f"{path.name} has two prompts with the id {prompt.id!r}", hint="give each its own id")
        seen.add(prompt.id)
