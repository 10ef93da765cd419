"""Spec-Bench's answer files: one per contender and repeat, a line per question.

``accept_lengths`` has one entry per step after the first token, the target's own token included; ``new_tokens`` counts
every token of the text; ``wall_time`` is that of a turn, prefill included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from spec_commands import common
from spec_commands.common import as_json

from spec_compare.exports.tables import write_file
from spec_compare.figures.outcome import Outcome
from spec_compare.records.header import Header
from spec_compare.records.record import Record

DIGITS = 18
"""Max digits of an id that is written as a number."""


def write_answers(outcome: Outcome, folder: Path) -> list[Path]:
    """One file per contender and repeat: ``NAME.jsonl``, or ``NAME-run2.jsonl`` if there are several."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise common.write_error(folder, error) from error
    texts: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for record in (r for lap in outcome.laps for r in lap.records):
        texts.setdefault((record.contender, record.repeat), {}).setdefault(record.prompt, []).append(record)
    names = file_names([name for name, _ in texts])
    several = outcome.header.repeats > 1
    paths = []
    for (name, repeat), questions in texts.items():
        path = folder / f"{names[name]}{f'-run{repeat + 1}' if several else ''}.jsonl"
        paths.append(write_file(path, lines(questions.values(), outcome.header)))
    return paths


def file_names(contenders: Iterable[str]) -> dict[str, str]:
    """A file name for each contender; numbered where two would be equal."""
    names: dict[str, str] = {}
    for name in dict.fromkeys(contenders):
        plain = re.sub(r"[^\w.=+-]+", "-", name).strip("-.") or "contender"
        number, free = 2, plain
        while free in names.values():
            free, number = f"{plain}-{number}", number + 1
        names[name] = free
    return names


def lines(questions: Iterable[list[Record]], header: Header) -> bytes:
    """The lines of a file, sorted by question."""
    ordered = sorted(questions, key=lambda turns: _order(turns[0].prompt))
    return "".join(as_json(answer(turns, header)) + "\n" for turns in ordered).encode()


def _order(prompt: str) -> tuple[int, int, str]:
    """Numbers in their order, then texts."""
    return (0, int(prompt), "") if is_number(prompt) else (1, 0, prompt)


def is_number(prompt: str) -> bool:
    """Whether the id of a prompt is a number; more digits than of 64 bits are a text."""
    return prompt.isdecimal() and len(prompt) <= DIGITS


def answer(turns: list[Record], header: Header) -> dict[str, Any]:
    """One line: a question with its turns."""
    first = turns[0]
    choice = {
        "index": 0,
        "turns": [turn.text for turn in turns],
        "decoding_steps": [len(turn.steps.emitted) for turn in turns],
        "new_tokens": [turn.token_count for turn in turns],
        "wall_time": [turn.whole_seconds for turn in turns],
        "accept_lengths": [n for turn in turns for n in turn.steps.emitted],
    }
    return {
        "question_id": int(first.prompt) if is_number(first.prompt) else first.prompt,
        "category": first.family,
        "answer_id": f"{first.contender}/{first.prompt}/{first.repeat}",
        "model_id": first.contender,
        "choices": [choice],
        "tstamp": datetime.fromisoformat(header.date).timestamp(),
    }
