"""Untrusted JSON: limited in size, an object at the top, errors in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spec_targets.formats.damage import damage_error, unsupported_error

MAX_BYTES = 64 << 20


def parse_json(path: Path, raw: bytes) -> dict[str, Any]:
    """An object from bytes. Raises UsageError for anything else, however deeply nested."""
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise damage_error(path, f"is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise damage_error(path, "is nested too deeply") from error
    except ValueError as error:
        raise damage_error(path, f"is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise damage_error(path, f"holds a {type(value).__name__}, an object is needed")
    return value


def read_json(path: Path, bytes_max: int = MAX_BYTES) -> dict[str, Any]:
    """A JSON object from a file of at most ``bytes_max`` bytes."""
    try:
        size = path.stat().st_size
        if size > bytes_max:
            raise damage_error(path, f"has {size} bytes, the limit is {bytes_max}")
        return parse_json(path, path.read_bytes())
    except OSError as error:
        raise unsupported_error(
            path, f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error
