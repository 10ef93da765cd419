"""Phrases that come back by habit, each with a plain wording: in pages, docstrings, comments and messages."""

from __future__ import annotations

import io
import re
import tokenize
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
DIALECT = {
    r"\bbeside\b": "next to, in addition to, with",
    r"\bbehind\b": "after",
    r"\bthose\s+(#\s+)?of\b": "name the thing, or a genitive",
    r"\blikeliest\b": "most likely",
    r"\bnobody\b": "name who does not",
}
"""Words that no other project uses in this way, in prose: not in names, nor in what stands in backticks or alone."""
PROSE = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
QUOTED = re.compile(r"`+[^`\n]+`+|(?<=\")\w+(?=\")")
"""Code in prose, and texts of one word, such as names in ``__all__``."""


def prose_of(path: Path) -> str:
    """The text of a page, or strings and comments of a source, the rest blank; names are blank, too."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        text = strings_and_comments(text)
    return QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)


def strings_and_comments(source: str) -> str:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kept = [character if character == "\n" else " " for character in source]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in PROSE:
            start, end = (starts[line - 1] + column for line, column in (token.start, token.end))
            kept[start:end] = source[start:end]
    return "".join(kept)


def phrases_in(path: Path) -> list[str]:
    """Every phrase of a file with its line and what to write."""
    text = path.read_text("utf-8")
    return [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}: write {plain!r}"
        for phrase, plain in PLAIN.items()
        for hit in re.finditer(phrase, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("files", [PAGES, SOURCES], ids=["pages", "sources"])
def test_pages_and_sources_have_no_words_of_their_own(files):
    lines = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}: write {plain}"
        for path in files
        for text in [prose_of(path)]
        for word, plain in DIALECT.items()
        for hit in re.finditer(word, text, re.IGNORECASE)
    ]

    assert lines == []


def test_a_word_is_found_in_prose_and_not_in_names(tmp_path):
    """Not in code, nor in backticks, nor as a text of its own."""
    source = tmp_path / "source.py"
    source.write_text('def likeliest():\n    """The likeliest of ``behind``."""\n    return "nobody"  # those\n# of\n')

    text = prose_of(source)
    assert [word for word in DIALECT if re.search(word, text)] == [r"\bthose\s+(#\s+)?of\b", r"\blikeliest\b"]


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
