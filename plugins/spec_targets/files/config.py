"""Untrusted JSON: limited in size, an object at the top, errors in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spec_targets.files.damage import damaged, unsupported

MAX_BYTES = 64 << 20


def parse_json(path: Path, raw: bytes) -> dict[str, Any]:
    """An object from bytes. Raises UsageError for anything else, however deeply nested."""
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise damaged(path, f"is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise damaged(path, "is nested too deeply") from error
    except ValueError as error:
        raise damaged(path, f"is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise damaged(path, f"holds a {type(value).__name__}, an object is needed")
    return value


def read_json(path: Path, bytes_max: int = MAX_BYTES) -> dict[str, Any]:
    """A JSON object from a file of at most ``bytes_max`` bytes."""
    try:
        size = path.stat().st_size
        if size > bytes_max:
            raise damaged(path, f"has {size} bytes, the limit is {bytes_max}")
        return parse_json(path, path.read_bytes())
    except OSError as error:
        raise unsupported(path, f"cannot be read: {error.strerror}", "check the path and its permissions") from error
