"""The notebook of ``docs/notebook.md``: its Python as cells, its commands with ``!``, its sentences as Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "notebook.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook() -> str:
    """The file, in version 4.5 of the notebook format."""
    cells = [cell | {"id": f"cell-{n}"} for n, cell in enumerate(cells_of(PAGE.read_text("utf-8")))]
    body = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def cells_of(text: str) -> list[dict[str, Any]]:
    """The cells of a page. A printed output of the page belongs to the cell before it; one that is cut is left out."""
    cells: list[dict[str, Any]] = []
    end = 0
    for fence in FENCE.finditer(text):
        if prose := text[end : fence.start()].strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": lines_of(prose)})
        end = fence.end()
        if fence[1] != "text":
            cells.append(
                code_cell(fence[2] if fence[1] == "python" else re.sub("^", "!", fence[2].rstrip(), flags=re.M))
            )
        elif "..." not in fence[2]:
            cells[-1]["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines_of(fence[2])}]
    if prose := text[end:].strip():
        cells.append({"cell_type": "markdown", "metadata": {}, "source": lines_of(prose)})
    return cells


def as_commands(script: str) -> str:
    """Lines of a shell as a cell runs them."""
    return "".join(f"!{line}" for line in script.splitlines(keepends=True))


def code_cell(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": lines_of(source.rstrip()),
    }


def lines_of(text: str) -> list[str]:
    """The lines with their ends."""
    return text.splitlines(keepends=True)
