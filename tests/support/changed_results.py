"""Changes results of a comparison at random, and runs every command that reads them."""

from __future__ import annotations

import io
import json
import random
import shutil
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from spec_cli.main import run_command
from spec_commands.printing import COMMANDS
from spec_compare.records.reading import LAPS

VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 10**6, 2**63, 10**30, 0.5, -0.0, 1e-300, 9e299, "", "x", "plain", "\ud800",
    "a\x1b[2Jb\x07", "\x9b31m", "\u202eabc", [], [1], ["x"], [None], [-1], {}, {"x": 1}, {"x": "y"}, {"": []},
)  # fmt: skip
"""Values that replace a value: of its type or of another."""
READERS: tuple[tuple[str, ...], ...] = (
    ("compare", "show", "DIR"),
    ("compare", "show", "DIR", "--json"),
    ("compare", "export", "DIR", "--csv", "FILE.csv"),
    ("compare", "export", "DIR", "--parquet", "FILE.parquet"),
    ("compare", "export", "DIR", "--texts", "FILE.texts"),
    ("compare", "export", "DIR", "--spec-bench", "FILE.answers"),
    ("compare", "report", "DIR", "FILE.html"),
    ("compare", "bundle", "DIR", "FILE.zip", "--no-report"),
    ("compare", "merge", "DIR", "WHOLE"),
    ("compare", "cite", "DIR"),
    ("replay", "DIR"),
    ("replay", "DIR", "--length", "2", "--min-chance", "0.5", "--control", "auto"),
)


def place(value: Any, rng: random.Random) -> tuple[Any, ...] | None:
    """The path of a value in an object; each level is as likely as the one below it. None for an empty object."""
    path: list[Any] = []
    while isinstance(value, dict | list) and value and (not path or rng.random() < 0.7):
        path.append(rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value)))
        value = value[path[-1]]
    return tuple(path) or None


def change_lines(lines: list[dict[str, Any]], rng: random.Random) -> tuple[list[dict[str, Any]], str]:
    """A copy with one to three changes, and what they are."""
    lines, changes = json.loads(json.dumps(lines)), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.choice((0, 0, rng.randrange(len(lines))))
        where = place(lines[at], rng)
        if where is not None:
            changes.append(f"line {at + 1} {where}: {change(lines, at, where, rng)}")
    return lines, "; ".join(changes)


def change(lines: list[dict[str, Any]], at: int, where: tuple[Any, ...], rng: random.Random) -> str:
    """Change the value at a path. With some luck everywhere where the same path is, so that parts still agree."""
    others = [i for i, line in enumerate(lines) if i and at] if rng.random() < 0.3 else [at]
    kind = rng.choice(("replace", "replace", "replace", "remove", "rename", "twice", "as elsewhere"))
    value = rng.choice(VALUES)
    for i in others:
        *before, last = where
        try:
            parent = lines[i]
            for key in before:
                parent = parent[key]
            if kind == "remove":
                del parent[last]
            elif kind == "rename" and isinstance(parent, dict):
                parent[f"{last}\x1b"] = parent.pop(last)
            elif kind == "twice" and isinstance(parent, list):
                parent.append(parent[last])
            elif kind == "as elsewhere" and isinstance(parent, dict):
                parent[last] = parent[rng.choice(list(parent))]
            else:
                parent[last] = value
        except (KeyError, IndexError, TypeError):
            continue
    return f"{kind} {value!r}" if kind == "replace" else kind


def write(lines: list[dict[str, Any]], folder: Path) -> None:
    """Results with these lines."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / LAPS).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def faults(folder: Path, whole: Path, readers: Any = READERS) -> list[str]:
    """Faults of the commands: a traceback, or a character on the terminal that commands it."""
    unnoticed = []
    names = {"DIR": str(folder), "WHOLE": str(whole)}
    for reader in readers:
        words = [names.get(word, word.replace("FILE", str(folder / "made"))) for word in reader]
        printed = io.StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                run_command(words)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            ours = [f for f in traceback.extract_tb(error.__traceback__) if "/spec_" in f.filename][-1]
            where = f"{ours.filename.rpartition('/')[2]}:{ours.lineno} ({place.name})"
            unnoticed.append(f"{' '.join(reader)}: {type(error).__name__}: {error} in {where}")
        if mark := COMMANDS.search(printed.getvalue()):
            unnoticed.append(f"{' '.join(reader)}: prints {mark[0]!r}")
    return unnoticed
