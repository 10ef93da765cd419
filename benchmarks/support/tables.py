"""Marked tables of pages: ``<!-- table: NAME -->``, lines that a benchmark writes, ``<!-- /table -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "benchmarks.md"
MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- /table -->)", re.DOTALL)


def write(page: Path, lines: Callable[[str], list[str] | None]) -> None:
    """Write every marked table of a page anew. lines: of the table of that name, or None for one that stays."""

    def table(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        anew = lines(name)
        return found[0] if anew is None else begin + "\n".join(anew) + "\n" + end

    page.write_text(MARKED.sub(table, page.read_text("utf-8")), "utf-8")


def row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def heading(cells: list[str]) -> list[str]:
    """The two lines a table begins with."""
    return [row(cells), row("---" for _ in cells)]
