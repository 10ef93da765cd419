"""Marked tables of pages: lines between ``<!-- table: NAME -->`` and ``<!-- /table -->`` that a benchmark writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- /table -->)", re.DOTALL)


def write(page: Path, lines: Callable[[str], list[str] | None]) -> None:
    """Rewrite the marked tables of a page. lines: returns the lines of a table by name, or None to keep it."""
    page.write_text(with_tables(page.read_text("utf-8"), lines), "utf-8")


def with_tables(text: str, lines: Callable[[str], list[str] | None]) -> str:
    """The text of a page with its marked tables replaced."""

    def table(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        anew = lines(name)
        return match[0] if anew is None else begin + "\n".join(anew) + "\n" + end

    return MARKED.sub(table, text)


def row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def heading(cells: list[str]) -> list[str]:
    """The first two lines of a table."""
    return [row(cells), row("---" for _ in cells)]
