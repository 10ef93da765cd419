"""JSON lines that a campaign appends to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """Lines of a file, none if there is no file; a line that was cut off in the middle is left out."""
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue
