"""Recognises a bare path by its first bytes or files. Imports nothing heavy, as it runs before anything is loaded."""

from __future__ import annotations

from pathlib import Path

MAGIC = b"GGUF"


def gguf(path: Path) -> bool:
    """Whether a file begins like a GGUF file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def hf(path: Path) -> bool:
    """Whether a directory has a config.json."""
    return (path / "config.json").is_file()
