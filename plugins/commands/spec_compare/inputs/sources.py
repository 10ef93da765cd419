"""Reads prompts: JSON lines, conversations of several turns, a text file, or a directory of text files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from spec_commands.prompts import Prompt, as_messages, json_lines, read_prompt_file

from spec_compare.inputs import conversations, public_sets, rows, sized, suites
from spec_compare.inputs.sized import restore_lengths
from spec_core.errors import UsageError, error_message

TEXTS = (".txt", ".md")
"""Suffixes of files that are one prompt each."""


@attrs.frozen
class PromptSource:
    """Prompts and where they come from. max_tokens: length to which the source wants them cut, None for no limit."""

    name: str
    prompts: list[Prompt]
    max_tokens: int | None = None


def source(path: Path, chat: bool) -> PromptSource:
    """The prompts of a file or directory. chat: texts become user messages. Raises UsageError."""
    if path.is_dir() or path.suffix in TEXTS:
        return PromptSource(str(path), as_messages(path, list(texts(path))) if chat else list(texts(path)))
    return PromptSource(str(path), json_prompts(path, chat), conversations.bucket(path))


def json_prompts(path: Path, chat: bool) -> list[Prompt]:
    """The prompts of JSON lines, by the form of the first line. Raises UsageError."""
    if (name := public_sets.recognise_set(path)) is not None:
        prompts = public_sets.read_set(name, path)
        return as_messages(path, prompts) if chat else prompts
    row = first_row(path)
    if turns := conversations.turns_column(row):
        return [*conversations.read_conversations(path, turns)]
    if column := rows.column_of(row):
        prompts = rows.read_rows(path, column)
        return as_messages(path, prompts) if chat else prompts
    prompts = read_prompt_file(path, chat)
    return restore_lengths(path, prompts) if isinstance(row, dict) and sized.KEY in row else prompts


def first_row(path: Path) -> Any:
    """The first line of a file; None if it is no JSON: the reader of the lines says what is wrong."""
    lines = json_lines(path, "pass a JSONL file of prompts, a text file, or a directory of text files")
    try:
        return json.loads(lines[0][1]) if lines else None
    except (ValueError, RecursionError):
        return None


def suite(name: str, chat: bool, file: Path | None = None) -> PromptSource:
    """The prompts of a suite, from a file of it or from an installed package. Raises UsageError that says how."""
    if file is not None:
        prompts = public_sets.read_set(name, file)
        text = f"{name} ({file})"
        return PromptSource(text, as_messages(file, prompts) if chat else prompts, conversations.bucket(file))
    prompts, path = suites.prompts(name)
    return PromptSource(f"{name} ({path})", as_messages(path, prompts) if chat else prompts)


def texts(path: Path) -> Iterator[Prompt]:
    """Prompts of text files, one each; the folder below ``path`` is the family. Raises UsageError."""
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in TEXTS) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} has no files that end in {' or '.join(TEXTS)}", hint="put each prompt into a file")
    for file in files:
        name = file.relative_to(path) if path.is_dir() else Path(file.name)
        family = name.parts[0] if len(name.parts) > 1 else (path.name or "texts")
        yield Prompt(name.as_posix(), family, _read(file))


def _read(file: Path) -> str:
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error_message(error)}", hint="give text files in UTF-8") from error
    if not text.strip():
        raise UsageError(f"{file} is empty", hint="remove it, or write a prompt into it")
    return text
