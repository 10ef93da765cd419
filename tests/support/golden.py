"""Path of the golden vectors, which are not part of the project: without them tests are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"


def golden(name: str) -> Path:
    """The folder of one golden case; skips the test where it is absent."""
    path = GOLDEN / name
    if not path.exists():
        pytest.skip(f"golden vectors {name!r} are not on this machine")
    return path
