"""What a bare path is, by a look at it. Imports nothing heavy: asked before anything is loaded."""

from __future__ import annotations

from pathlib import Path

MAGIC = b"GGUF"


def gguf(path: Path) -> bool:
    """A file that begins as GGUF files do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def hf(path: Path) -> bool:
    """A directory with a config.json."""
    return (path / "config.json").is_file()
