"""CONTRIBUTING.md and docs/architecture.md name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def paths(text: str) -> list[str]:
    """Texts in backticks with a slash, without placeholders."""
    return [p for p in re.findall(r"`([\w./]+/[\w./]+)`", text) if "NAME" not in p and not p.startswith("shared/")]


def test_the_files_that_contributing_names_exist():
    mentioned = paths((ROOT / "CONTRIBUTING.md").read_text("utf-8"))

    assert len(mentioned) > 20
    assert not [path for path in mentioned if not (ROOT / path).exists()]
    assert paths("`docs/x.md` `NAME/x.py` `a word`") == ["docs/x.md"]


def test_the_files_to_look_at_exist():
    """The table in docs/architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    mentioned = paths(page.partition("## Where to look")[2].partition("\n## ")[0])

    assert len(mentioned) > 12
    assert not [path for path in mentioned if not (ROOT / path).is_file()]
