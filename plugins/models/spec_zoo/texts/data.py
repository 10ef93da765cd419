"""Training text that every machine has: the source of Python's standard library, split by package.

Returns files, prose and tasks as texts; ``tokens.py`` turns them into token streams.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = frozenset(
    "json textwrap argparse statistics configparser sched shelve fractions csv calendar heapq graphlib "
    "difflib wave netrc tomllib colorsys cmd mailbox zipapp secrets contextlib sqlite3".split()
)
"""Packages and modules whose files are never trained on."""
LEFT_OUT = frozenset(
    "encodings test tests idle_test site-packages lib2to3 __pycache__ config turtledemo ensurepip msilib".split()
)
PROSE = "pydoc_data"
PROSE_HELD_OUT = 0.12
MIN_BYTES, MAX_BYTES = 200, 400_000


def library() -> Path:
    """Path of the standard library's source."""
    return Path(sysconfig.get_paths()["stdlib"])


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """(package, file) of every module, without tables, tests and generated files."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if set(parts) & LEFT_OUT or any(p.startswith(("config-", "_sysconfigdata")) for p in parts):
            continue
        if parts[0] != PROSE and MIN_BYTES <= path.stat().st_size <= MAX_BYTES:
            yield parts[0].removesuffix(".py"), path


def split_files(root: Path | None = None) -> tuple[list[str], list[str]]:
    """Texts of training files and of held-out files. A package is in one of them only; equal blocks are kept once."""
    train: list[str] = []
    held: list[str] = []
    seen: set[bytes] = set()
    entries = list(sources(root or library()))
    for package, path in sorted(entries, key=lambda e: e[0] not in HELD_OUT):
        text = path.read_text(encoding="utf-8", errors="replace")
        fresh = without_known_blocks(text, seen)
        if len(fresh) >= MIN_BYTES:
            (held if package in HELD_OUT else train).append(fresh)
    return train, held


def without_known_blocks(text: str, seen: set[bytes], lines: int = 12) -> str:
    """The text without blocks of lines that occurred before, here or in another file; new ones go to ``seen``."""
    rows = text.split("\n")
    kept: list[str] = []
    for at in range(0, len(rows), lines):
        block = "\n".join(rows[at : at + lines])
        mark = hashlib.blake2b("".join(block.split()).encode(), digest_size=12).digest()
        if mark not in seen or len(block) < 80:
            kept.append(block)
        seen.add(mark)
    return "\n".join(kept)


def prose(root: Path | None = None) -> tuple[list[str], list[str]]:
    """The language reference that pydoc ships, one text per topic; the last topics are held out."""
    path = (root or library()) / PROSE / "topics.py"
    if not path.exists():
        return [], []
    topics = next(n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Assign))
    table = ast.literal_eval(topics)
    texts = [table[name] for name in sorted(table)]
    cut = round(len(texts) * (1 - PROSE_HELD_OUT))
    return texts[:cut], texts[cut:]


def docstrings(texts: list[str], min_length: int = 300) -> list[str]:
    """Long docstrings of modules, classes and functions."""
    long: list[str] = []
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docs = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
        long += [doc for doc in docs if doc and len(doc) >= min_length]
    return long
