"""Phrases that come back by habit, each with a plain wording: in pages, docstrings, comments and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("spec_core", "kernels", "plugins", "tools")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
PLAIN = {
    r"\bno longer sees\b": "a sequence that has a draft is not offered to later methods",
    r"\bwhy a value is what it is\b": "where each setting came from",
    r"\bthe paper beside the loop\b": "does the loop still read like the paper?",
    r"\bprocess has told every row\b": "`process` has delivered all evaluated rows",
    r"\bnearly ours\b": "a near miss of a known variable",
    r"\bwhat was right of\b": "accepted divided by predicted",
    r"\bhow loud that is\b": "copy strength and confidence",
    r"\bwhole pieces of\b": "blocks of 64 prompt positions",
    r"\bcan be seen before a run\b": "errors that can be detected before a run",
    r"\bthat is where p_min belongs\b": "set `p_min` to this value",
    r"\bat which value it does not\b": "declares its disabling value as `off`",
    r"\bin (any )?company\b": "batched rows",
    r"\bnobody would roll back\b": "no plugin owns the 'recurrent' state",
    r"\bis no number any more\b": "became NaN or infinite",
    r"\bis no KEY=VALUE\b|\bis no key=value\b": "must be KEY=VALUE",
    r"\bis no model that an installed\b": "no installed target recognises PATH",
    r"\bits text is no result\b": "benchmark only; the text is meaningless",
    r"\bstranger can add\b": "anyone can add",
    r"\bengine room\b": "say what the page is about",
    r"\bwho proposed (it|the token|them)\b": "its source",
    r"\b(were|was|not) told (yet|before)\b": "reported",
    r"\btold apart\b": "distinguished",
    r"\bis said on the page\b": "PAGE describes it",
    r"\bby nobody else\b": "only by",
    r"\bas far as it came\b|\bthere was by then\b": "the text generated so far",
    r"\bmeets all of them\b": "affects all of them",
    r"\bto be had\b": "available",
    r"\bbegins? anew\b": "restarts",
    r"\bmeasured in turns\b|\bcontenders in turns\b": "alternating",
    r"\bcounts? no longer\b": "is dropped",
    r"\bpays? best\b": "gives the most tokens per time",
    r"\bwhat it loses is lost\b": "its distance from the bound is the cost of the loop",
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
    (tmp_path / "page.md").write_text("A page.\nRows in company keep their bits.\n")

    assert phrases_in(tmp_path / "page.md") == ["page.md:2: 'in company': write 'batched rows'"]
