"""Recognises a bare path by its first bytes or files. Imports nothing heavy, as it runs before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from spec_core.errors import UsageError

MAGIC = b"GGUF"


def gguf(path: Path) -> bool:
    """Whether a file begins like a GGUF file. Raises UsageError for one that only has the name of one."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begins = file.read(len(MAGIC)) == MAGIC
    if not begins and path.suffix == ".gguf":
        raise UsageError(
            f"{path} does not begin with GGUF: it is another kind of file, or damaged", hint="get it again"
        )
    return begins


def hf(path: Path) -> bool:
    """Whether a directory has a config.json."""
    return (path / "config.json").is_file()
