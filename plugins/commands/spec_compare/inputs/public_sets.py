"""Public sets from a file that the user has: what their rows are, and the prompts that are made of them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import attrs
from spec_commands.common import print_note
from spec_commands.prompts import FORMS, Prompt, parse_line

from spec_compare.inputs.conversation import Conversation, first_message
from spec_compare.inputs.rows import check_filled, row_family, row_id
from spec_core.errors import UsageError, error_message, nearest_names

LARGEST = 2 << 30
"""Max bytes of a file."""
LINE_LARGEST = 64 << 20
"""Max characters of a line."""
KEYS_SHOWN = 8
SUBSETS = (
    "HumanEval", "math_reasoning", "qa", "question", "rag", "summarization", "tool_call", "translation", "writing",
)  # fmt: skip
"""Files of RedHatAI/speculator_benchmarks, without their suffix."""
HUMAN = ("human", "user")
Row = dict[str, Any]


@attrs.frozen
class PublicSet:
    """row: what a row has, in words. has: whether a row is one of this set. made: the prompt of a row, None without.

    certain: whether a row can be of no other set, so that the set need not be named.
    """

    row: str
    has: Callable[[Row], bool]
    made: Callable[[Path, str, int, Row], Prompt | None]
    certain: bool = False


def _is_text(row: Row, *names: str) -> bool:
    return all(isinstance(row.get(name), str) and row[name].strip() for name in names)


def _has_turns(row: Row) -> bool:
    turns = row.get("turns")
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, str) and turn.strip() for turn in turns)


def _question(path: Path, where: str, number: int, row: Row) -> Prompt:
    turns = tuple(check_filled(where, turn) for turn in row["turns"])
    return Conversation(row_id(row, number), row_family(row, path.stem), first_message(turns[0]), turns)


def _text(path: Path, where: str, number: int, row: Row) -> Prompt:
    """A row of a file of speculator_benchmarks, or of HumanEval; the file is the family."""
    stem = path.name.split(".")[0]
    return Prompt(f"{stem}/{row_id(row, number)}", stem, check_filled(where, row["prompt"]))


def _instruction(path: Path, where: str, number: int, row: Row) -> Prompt | None:
    if not _is_text(row, "instruction"):
        return None
    more = row.get("input")
    text = f"{row['instruction']}\n\n{more}" if isinstance(more, str) and more.strip() else row["instruction"]
    return Prompt(row_id(row, number), row_family(row, "alpaca"), text)


def _is_talk(row: Row) -> bool:
    talk = row.get("conversations")
    return isinstance(talk, list) and all(isinstance(m, Mapping) and "from" in m and "value" in m for m in talk)


def _talk(path: Path, where: str, number: int, row: Row) -> Prompt | None:
    """The human's turns of a conversation; the answers between are the model's own."""
    values = (m["value"] for m in row["conversations"] if m["from"] in HUMAN)
    turns = tuple(text for text in values if isinstance(text, str) and text.strip())
    if not turns:
        return None
    return Conversation(row_id(row, number), row_family(row, "sharegpt"), first_message(turns[0]), turns)


def _picture_row(path: Path, where: str, number: int, row: Row) -> Prompt:
    """A question on a picture, from the folder ``images`` next to the file; its topic is the family."""
    name = PurePath(row["image"])
    picture = path.parent / "images" / name
    if name.is_absolute() or ".." in name.parts or not picture.is_file():
        raise UsageError(
            f"{where}: there is no picture {row['image']!r:.80} in {path.parent / 'images'}",
            hint="keep the folder images of MMSpec next to its mmspec.jsonl",
        )
    turns = tuple(row["turns"])
    family = row["topic"] if _is_text(row, "topic") else row_family(row, "mmspec")
    return Conversation(row_id(row, number), family, first_message(turns[0], str(picture)), turns)


TURNS = '"question_id", "category" and "turns", a list of texts'
SETS: Mapping[str, PublicSet] = {
    "mmspec": PublicSet(
        '"id", "image", "turns" and "topic"',
        lambda row: _is_text(row, "image") and _has_turns(row),
        _picture_row,
        True,
    ),
    "sharegpt": PublicSet('"conversations" of objects with "from" and "value"', _is_talk, _talk, True),
    "alpaca": PublicSet(
        '"instruction", "input" and "output"',
        lambda row: {"instruction", "output"} <= row.keys() and isinstance(row["instruction"], str),
        _instruction,
        True,
    ),
    "humaneval": PublicSet('"task_id" and "prompt"', lambda row: _is_text(row, "task_id", "prompt"), _text),
    "mt-bench": PublicSet(TURNS, _has_turns, _question),
    "spec-bench": PublicSet(TURNS, _has_turns, _question),
    "speed-bench": PublicSet(TURNS, _has_turns, _question),
    "speculator-benchmarks": PublicSet(
        f'"prompt", a text; the directory has {", ".join(SUBSETS)}.jsonl', lambda row: _is_text(row, "prompt"), _text
    ),
}
"""By the name of ``--suite``."""


def recognise_set(path: Path) -> str | None:
    """The set that a file certainly is of, by its first row; None for files that other readers know or refuse."""
    try:
        _, row = next(_rows(path))
    except (StopIteration, UsageError):
        return None
    if not isinstance(row, dict) or row.keys() & set(FORMS):
        return None
    return next((name for name, one in SETS.items() if one.certain and one.has(row)), None)


def read_set(name: str, path: Path) -> list[Prompt]:
    """The prompts of a set from a file, or from the directory of its files. Raises UsageError for another form."""
    if name not in SETS:
        raise UsageError(f"there is no suite {name!r}", hint=f"suites: {nearest_names(name, SETS)}")
    prompts = [prompt for file in _files(name, path) for prompt in _prompts(name, SETS[name], file)]
    if not prompts:
        raise UsageError(f"{path} has no prompts", hint=f"a row of {name} has {SETS[name].row}")
    often, seen = Counter(prompt.id for prompt in prompts), Counter[str]()
    for at, prompt in enumerate(prompts):
        seen[prompt.id] += 1
        if often[prompt.id] > 1:
            prompts[at] = attrs.evolve(prompt, id=f"{prompt.id}#{seen[prompt.id]}")
    return prompts


def _files(name: str, path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = {"mmspec": [path / "mmspec.jsonl"], "speculator-benchmarks": [path / f"{s}.jsonl" for s in SUBSETS]}
    there = [file for file in files.get(name, []) if file.is_file()]
    if not there:
        raise UsageError(
            f"{path} is a directory without files of {name}",
            hint=f"a row of {name} has {SETS[name].row}; pass its file",
        )
    return there


def _prompts(name: str, public_set: PublicSet, path: Path) -> Iterator[Prompt]:
    left_out = 0
    for number, row in _rows(path):
        where = f"{path.name}, row {number}"
        if not isinstance(row, dict) or not public_set.has(row):
            keys = ", ".join(map(repr, list(row)[:KEYS_SHOWN])) if isinstance(row, dict) else type(row).__name__
            raise UsageError(
                f"{where} is not of {name}: it has {keys or 'nothing'}",
                hint=f"a row of {name} has {public_set.row}; without --suite the form is recognised",
            )
        prompt = public_set.made(path, where, number, row)
        left_out += prompt is None
        if prompt is not None:
            yield prompt
    if left_out:
        print_note(f"{path.name}: {left_out} rows without a question are left out")


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(number, row) of a JSON list, or of JSON lines; either may be compressed by gzip."""
    text = _read(path)
    example = "pass a JSON list or JSON lines, in UTF-8"
    if text.lstrip()[:1] == "[" and (rows := _list(text)) is not None:
        yield from enumerate(rows, 1)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_LARGEST:
            raise UsageError(f"{path.name}, line {number} has more than {LINE_LARGEST >> 20} MB", hint=example)
        if line.strip():
            yield number, parse_line(f"{path.name}, line {number}", line, example)


def _list(text: str) -> list[Any] | None:
    """The rows of a JSON list of objects; None for anything else."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None


def _read(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(LARGEST + 1)
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error_message(error)}", hint="pass a JSON list or JSON lines, in UTF-8") from error
    if len(data) > LARGEST:
        raise UsageError(f"{path} has more than {LARGEST >> 30} GB", hint="pass a part of it")
    return text
