"""Questions of Spec-Bench, MT-bench and SPEED-Bench: JSON lines with ``question_id``, ``category`` and ``turns``.

AIPerf's MT-bench has its turns in ``prompt``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spec_commands.prompts import check_ids, json_lines, parse_line

from spec_compare.inputs.conversation import PICTURE, Conversation, first_message
from spec_compare.inputs.rows import check_filled, row_family, row_id
from spec_core.errors import UsageError

EXAMPLE = 'write lines of {"question_id": 81, "category": "writing", "turns": ["...", "..."]}'
THROUGHPUT = re.compile(r"throughput_(\d{1,3})k", re.IGNORECASE)
"""Names of SPEED-Bench files with the length of their prompts, in units of 1,024 tokens."""


def turns_column(row: Any) -> str | None:
    """The column of the turns; None for rows of another form."""
    if not isinstance(row, dict):
        return None
    return "turns" if "turns" in row else "prompt" if isinstance(row.get("prompt"), list) else None


def read_conversations(path: Path, column: str = "turns") -> list[Conversation]:
    """The conversations of a file; each begins with its first turn. Raises UsageError that names the line."""
    conversations = [_conversation(path, number, line, column) for number, line in json_lines(path, EXAMPLE)]
    check_ids(path, conversations)
    return conversations


def _conversation(path: Path, number: int, line: str, column: str) -> Conversation:
    where = f"{path.name}, line {number}"
    row = parse_line(where, line, EXAMPLE)
    turns = row.get(column) if isinstance(row, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise UsageError(f"{where}: {column} must be a list of texts", hint=EXAMPLE)
    picture = row.get(PICTURE)
    first = first_message(turns[0], picture if isinstance(picture, str) else None)
    texts = tuple(check_filled(where, turn) for turn in turns)
    return Conversation(row_id(row, number), row_family(row, "all prompts"), first, texts)


def bucket(path: Path) -> int | None:
    """The length in tokens that a SPEED-Bench file of throughput prompts is made for; None for other files."""
    match = THROUGHPUT.search(path.stem)
    return int(match[1]) * 1024 if match else None
