"""Questions of Spec-Bench, MT-bench and SPEED-Bench: JSON lines with ``question_id``, ``category`` and ``turns``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from spec_commands.prompts import check_ids, json_lines, parse_line

from spec_compare.conversation import Conversation
from spec_core.errors import UsageError

EXAMPLE = 'write lines of {"question_id": 81, "category": "writing", "turns": ["...", "..."]}'
THROUGHPUT = re.compile(r"throughput_(\d{1,3})k", re.IGNORECASE)
"""Names of SPEED-Bench files with the length of their prompts, in units of 1,024 tokens."""


def has_turns(path: Path) -> bool:
    """Whether the first line of a file of JSON lines has ``turns``."""
    lines = json_lines(path, "pass a JSONL file of prompts, a text file, or a directory of text files")
    try:
        first = json.loads(lines[0][1]) if lines else None
    except (ValueError, RecursionError):
        return False  # the reader of prompts says what is wrong
    return isinstance(first, dict) and "turns" in first


def read(path: Path) -> list[Conversation]:
    """The conversations of a file; each begins with its first turn. Raises UsageError that names the line."""
    conversations = [_conversation(f"{path.name}, line {i}", i, line) for i, line in json_lines(path, EXAMPLE)]
    check_ids(path, conversations)
    return conversations


def _conversation(where: str, number: int, line: str) -> Conversation:
    entry = parse_line(where, line, EXAMPLE)
    turns = entry.get("turns") if isinstance(entry, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise UsageError(f"{where}: turns must be a list of texts", hint=EXAMPLE)
    first: list[dict[str, Any]] = [{"role": "user", "content": turns[0]}]
    name, family = str(entry.get("question_id", number)), str(entry.get("category", "all prompts"))
    return Conversation(name, family, first, tuple(turns))


def bucket(path: Path) -> int | None:
    """The length in tokens that a SPEED-Bench file of throughput prompts is made for; None for other files."""
    match = THROUGHPUT.search(path.stem)
    return int(match[1]) * 1024 if match else None
