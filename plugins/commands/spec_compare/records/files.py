"""The files that a comparison reads, with their hashes, and the commit of the program."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from spec_compare.records.header import File
from spec_core.errors import UsageError, error_message

SHARD = re.compile(r"(.*-)\d{5}(-of-\d{5}.*)")
"""Name of one file of a model that is split into several."""
READ = (".safetensors", ".json", ".jinja", ".model", ".gguf", ".bin")
"""Suffixes of files that a loader may read in a directory."""
PATIENCE = 10
"""Seconds to wait for git."""


def hash_files(path: Path) -> list[File]:
    """The file, all shards of it, or the files of a directory. Raises UsageError if one cannot be read."""
    return [_hash_once(one, *_identity(one)) for one in parts(path)]


def hashed_below(folder: Path) -> list[File]:
    """Every file in a folder and its folders, except hidden ones. Raises UsageError if one cannot be read."""
    entries = (one for one in folder.rglob("*") if one.is_file())
    return [_hash_once(one, *_identity(one)) for one in sorted(entries) if not _is_hidden(one.relative_to(folder))]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def parts(path: Path) -> list[Path]:
    """The files that belong to a model's path."""
    if path.is_dir():
        return sorted(one for one in path.iterdir() if one.is_file() and one.suffix in READ)
    if shard := SHARD.fullmatch(path.name):
        return sorted(path.parent.glob(f"{_literal(shard[1])}*{_literal(shard[2])}"))
    return [path]


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise read_error(path, error) from error
    return status.st_size, status.st_mtime_ns


def read_error(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read: {error_message(error)}", hint="the header of the results needs its hash")


@lru_cache(maxsize=256)
def _hash_once(path: Path, size: int, changed: int) -> File:
    """Read once while the file does not change."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise read_error(path, error) from error
    return File(str(path), size, digest)


def current_commit() -> str | None:
    """The commit of the repository that the program runs from; None if it runs from none, or git is missing."""
    import spec_core

    root = next(_roots(Path(spec_core.__file__).parent), None)
    if root is None:
        return None
    asked = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _roots(package: Path) -> Iterator[Path]:
    """The folder of the repository, if the package is a part of its source."""
    if (package.parent / ".git").exists() and (package.parent / "pyproject.toml").exists():
        yield package.parent
