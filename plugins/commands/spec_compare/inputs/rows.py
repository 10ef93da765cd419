"""Rows of the sets that AIPerf runs as ``spec_al_*``: one text a row, in a column that differs from set to set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spec_commands.prompts import FAMILIES, IDS, Prompt, check_ids, json_lines, parse_line

from spec_core.errors import UsageError

COLUMNS = {"question": "GSM8K", "problem": "MATH-500", "text": "MBPP"}
"""The column of the text, and the set that has it; HumanEval's is ``prompt``, as in our own files."""
ROW_IDS = (*IDS, "prompt_id", "unique_id")
"""Names of the id of a row."""
EXAMPLE = 'write lines of {"question": "..."}, {"problem": "..."} or {"text": "..."}'
MASK = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""Text of rows of SPEED-Bench whose prompt must be got from another data set first."""


def column_of(row: Any) -> str | None:
    """The column of the text; None for rows of another form."""
    if not isinstance(row, dict) or row.keys() & {"prompt", "messages", "tokens", "turns"}:
        return None
    return next((name for name in COLUMNS if isinstance(row.get(name), str)), None)


def read_rows(path: Path, column: str) -> list[Prompt]:
    """The prompts of a file; the family is its name unless rows have one. Raises UsageError that names the line."""
    prompts = [_prompt(path, number, line, column) for number, line in json_lines(path, EXAMPLE)]
    check_ids(path, prompts)
    return prompts


def _prompt(path: Path, number: int, line: str, column: str) -> Prompt:
    where = f"{path.name}, line {number}"
    row = parse_line(where, line, EXAMPLE)
    text = row.get(column) if isinstance(row, dict) else None
    if not isinstance(text, str) or not text:
        raise UsageError(f"{where} has no text in the column {column!r}", hint=EXAMPLE)
    return Prompt(row_id(row, number), row_family(row, path.stem), check_filled(where, text))


def row_id(row: dict[str, Any], number: int) -> str:
    """The id of a row, or its number."""
    return str(next((row[name] for name in ROW_IDS if name in row), number))


def row_family(row: dict[str, Any], default: str) -> str:
    """The family of a row."""
    return str(next((row[name] for name in FAMILIES if name in row), default))


def check_filled(where: str, text: str) -> str:
    """The text. Raises UsageError for a row of SPEED-Bench without its prompt."""
    if MASK in text:
        raise UsageError(
            f"{where} has no prompt yet: SPEED-Bench takes it from another data set",
            hint="run prepare_data.py of Model-Optimizer's examples/specdec_bench, and pass the file that it writes",
        )
    return text
