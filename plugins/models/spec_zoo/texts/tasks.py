"""Texts that can only be predicted from earlier text: edits of code, and records in two notations.

A small model learns from these to repeat its input; without them its output would hardly repeat its prompt.
"""

from __future__ import annotations

import json
import keyword
import random
import re

IDENTIFIER = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]{2,}\b")
LITERAL = re.compile(r"\b\d{1,4}\b|'[a-z_]{2,12}'")
NOT_NAMES = set(keyword.kwlist) | {"self", "cls", "None", "True", "False"}
WORDS = "alpha beta gamma delta node edge item value count total index limit offset result name path size kind".split()
FIRST = (
    "Ada Alan Barbara Carl Dora Edsger Frances Grace Hedy Ivan Jean Karl Lea Max Nina Otto Paul Rosa Sofia Tim".split()
)
CITIES = "Berlin Paris Madrid Oslo Rome Vienna Prague Lisbon Dublin Athens Zurich Tokyo Lima Cairo Delhi".split()
FIELDS = "id name city age score email active price stock color weight year level group".split()


def snippet(rng: random.Random, texts: list[str], low: int = 5, high: int = 26) -> str:
    """Some whole lines of a training file, at least 120 characters."""
    while True:
        lines = rng.choice(texts).split("\n")
        n = rng.randint(low, high)
        at = rng.randrange(max(1, len(lines) - n))
        text = "\n".join(line.rstrip() for line in lines[at : at + n]).strip("\n")
        if 120 <= len(text) <= 1100:
            return text


def names(text: str) -> list[str]:
    return sorted(set(IDENTIFIER.findall(text)) - NOT_NAMES)


def fresh_name(rng: random.Random) -> str:
    return "_".join(rng.sample(WORDS, rng.randint(1, 2)))


def rename_task(rng: random.Random, text: str) -> tuple[str, str]:
    candidates = names(text)
    if not candidates:
        return repeat_task(rng, text)
    old, new = rng.choice(candidates), fresh_name(rng)
    return f"# the same code with {old} renamed to {new}:", re.sub(rf"\b{old}\b", new, text)


def repeat_task(rng: random.Random, text: str) -> tuple[str, str]:
    return rng.choice(["# the same code again:", "# a copy of the code above:", "# once more:"]), text


def without_line(rng: random.Random, text: str) -> tuple[str, str]:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    return f"# the same code without the line `{lines[at].strip()}`:", "\n".join(lines[:at] + lines[at + 1 :])


def with_comment(rng: random.Random, text: str) -> tuple[str, str]:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    comment = f"# {' '.join(rng.sample(WORDS, 3))}"
    edited = [*lines[:at], indent + comment, *lines[at:]]
    return f"# the same code with the comment `{comment}` before `{lines[at].strip()}`:", "\n".join(edited)


def with_literal(rng: random.Random, text: str) -> tuple[str, str]:
    literals = sorted(set(LITERAL.findall(text)))
    if not literals:
        return rename_task(rng, text)
    old = rng.choice(literals)
    new = str(rng.randint(0, 999)) if old.isdigit() else f"'{rng.choice(WORDS)}'"
    return f"# the same code with {old} replaced by {new}:", text.replace(old, new)


EDITS = (rename_task, rename_task, repeat_task, without_line, with_comment, with_literal)


def edit_task(rng: random.Random, texts: list[str]) -> str:
    """A snippet, an instruction, and the edited snippet; sometimes edited twice."""
    text = snippet(rng, texts)
    whole = text
    for _ in range(1 if rng.random() < 0.7 else 2):
        instruction, text = rng.choice(EDITS)(rng, text)
        whole += f"\n\n{instruction}\n\n{text}"
    return whole


def records(rng: random.Random, n: int) -> tuple[list[str], list[list[object]]]:
    """Column names and n rows."""
    fields = rng.sample(FIELDS, rng.randint(3, 6))
    return fields, [[_value(rng, field, i) for field in fields] for i in range(n)]


def _value(rng: random.Random, field: str, i: int) -> object:
    if field == "id":
        return i + 1
    if field == "name":
        return rng.choice(FIRST)
    if field == "city":
        return rng.choice(CITIES)
    if field == "email":
        return f"{rng.choice(FIRST).lower()}@example.org"
    if field == "active":
        return rng.random() < 0.5
    if field in ("color", "group", "level"):
        return rng.choice(WORDS)
    if field in ("score", "price", "weight"):
        return round(rng.uniform(0, 100), 1)
    return rng.randint(0, 2024)


def write_records(rng: random.Random) -> str:
    """Text of one set of records in one notation or in two."""
    fields, rows = records(rng, rng.randint(4, 12))
    first, second = rng.sample(NOTATIONS, 2)
    text = first(fields, rows)
    if rng.random() < 0.6:
        text += f"\n\n# the same records as {second.__doc__}:\n\n{second(fields, rows)}"
    return text


def as_csv(fields: list[str], rows: list[list[object]]) -> str:
    """comma separated values"""
    return "\n".join([",".join(fields), *(",".join(str(v) for v in row) for row in rows)])


def as_json(fields: list[str], rows: list[list[object]]) -> str:
    """JSON"""
    lines = ",\n".join("  " + json.dumps(dict(zip(fields, row, strict=True))) for row in rows)
    return f"[\n{lines}\n]"


def as_dicts(fields: list[str], rows: list[list[object]]) -> str:
    """Python dictionaries"""
    lines = "\n".join(f"    {dict(zip(fields, row, strict=True))!r}," for row in rows)
    return f"RECORDS = [\n{lines}\n]"


def as_calls(fields: list[str], rows: list[list[object]]) -> str:
    """calls"""
    return "\n".join(f"add({', '.join(f'{f}={v!r}' for f, v in zip(fields, row, strict=True))})" for row in rows)


def as_ini(fields: list[str], rows: list[list[object]]) -> str:
    """sections"""
    return "\n\n".join(
        f"[record {i + 1}]\n" + "\n".join(f"{f} = {v}" for f, v in zip(fields, row, strict=True))
        for i, row in enumerate(rows)
    )


NOTATIONS = (as_csv, as_json, as_dicts, as_calls, as_ini)
