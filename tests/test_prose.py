"""Phrases that come back by habit, each with a plain wording: in pages, docstrings, comments and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("spec_core", "kernels", "plugins", "tools")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
UNWIELDY = "subject first: name the thing"
PLAIN = {
    r"(?<![^\"]\")\b(those\s+(#\s+)?that|of\s+(#\s+)?which|so\s+(#\s+)?many|what\s+(#\s+)?it\s+takes)\b": UNWIELDY,
    r"(?<![^\"]\")\b(?-i:[aA]s\s+(#\s+)?many)\b": UNWIELDY,
    r"\bin (any )?company\b": "batched rows",
    r"\bis no number any more\b": "became NaN or infinite",
    r"\bis no KEY=VALUE\b": "must be KEY=VALUE",
    r"\b(were|was|not) told (yet|before)\b": "reported",
    r"\btold apart\b": "distinguished",
    r"\bby nobody else\b": "only by",
    r"\bto be had\b": "available",
    r"\bbegins? anew\b": "restarts",
    r"\bcounts? no longer\b": "is dropped",
}


def phrases_in(path: Path) -> list[str]:
    """Every phrase of a file with its line and what to write."""
    text = path.read_text("utf-8")
    return [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}: write {plain!r}"
        for phrase, plain in PLAIN.items()
        for hit in re.finditer(phrase, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("files", [PAGES, SOURCES], ids=["pages", "sources"])
def test_pages_and_sources_say_it_plainly(files):
    assert [line for path in files for line in phrases_in(path)] == []


def test_a_phrase_is_found_with_its_line(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "page.md").write_text('Rows in company.\nNo "of which", but rows of\nwhich\n"""As many."""\n')

    lines = phrases_in(tmp_path / "page.md")
    assert [line.rpartition(": write")[0] for line in lines] == [
        "page.md:2: 'of\\nwhich'", "page.md:4: 'As many'", "page.md:1: 'in company'",
    ]  # fmt: skip
    assert lines[2].endswith(": write 'batched rows'")
