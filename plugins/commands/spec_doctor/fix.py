"""Writes a head: a corrected config.json, and links to its other files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_core.errors import UsageError, error_message

CONFIG = "config.json"


def write_fixed(head: Path, out: Path, changes: Mapping[str, Any]) -> None:
    """Write a directory in which a head is read with these changes. Raises UsageError."""
    if not head.is_dir():
        raise UsageError(
            f"{head.name} is one file, whose configuration cannot be corrected in a second file",
            hint="pass the directory that it was converted from, or the options that are printed",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already", hint="pass a directory that is new or empty")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file in sorted(head.iterdir()):
            if file.name != CONFIG:
                (out / file.name).symlink_to(os.path.relpath(file.resolve(), out.resolve()))
        raw = json.loads((head / CONFIG).read_text("utf-8"))
        kept = {**_plain(raw.get("spec_reading")), **changes}
        (out / CONFIG).write_text(json.dumps({**raw, "spec_reading": kept}, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error_message(error)}", hint="pass a writable path as --fix"
        ) from error


def _plain(reading: Any) -> dict[str, Any]:
    return dict(reading) if isinstance(reading, dict) else {}
