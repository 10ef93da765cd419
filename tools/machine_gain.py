"""What the machine does to a method's gain: the figure of ``benchmarks/results/machine-gain.json``."""

from __future__ import annotations

import re

from benchmarks.support.results import read_table
from tools import charts
from tools.charts import LABELS, WIDTH, Dot, Scale

FILE = "machine-gain"
METHODS = ("`ngram`", "`suffix`", "`recycling`")
GAINS = ("accepted length", "H200, given", "this CPU", "RTX 3090, published")
"""Columns of the gains that the figure shows."""
ALL = "all"


def records(name: str) -> list[dict[str, str]]:
    """Rows of a table as {column: cell}."""
    table = read_table(FILE, name)
    return [dict(zip(table["columns"], cells, strict=True)) for cells in table["rows"]]


def numbers(cell: str) -> tuple[float, float, float]:
    """A value with its interval from a cell such as ``1.94 (1.70-2.23)``."""
    value, low, high = map(float, re.findall(r"[\d.]+", cell))
    return value, low, high


def figure() -> str:
    """Gains of published accepted lengths by machine, and speedups of six categories of prompts on this CPU."""
    scale, parts = Scale(0.4, 4.6, LABELS, WIDTH - 20), charts.legend(24, GAINS)
    rows = [
        (f"{r['method']}, {r['rows of a step']} rows", [Dot(i, float(r[name])) for i, name in enumerate(GAINS)])
        for r in records("gains from published accepted lengths")
    ]
    title = "Published accepted lengths (Spec-Bench, Vicuna-7B), and the speedup that they allow"
    panel, y = charts.dots(54, title, rows, scale, (0.5, 1, 2, 3, 4), base=1)
    parts += [*panel, *charts.legend(y + 12, [name.strip("`") for name in METHODS])]
    lines: dict[str, list[Dot]] = {}
    for r in records("six categories"):
        lines.setdefault(short(r["category"]), []).append(
            Dot(METHODS.index(r["method"]), *numbers(r["speedup (90 %)"]))
        )
    scale = Scale(0.8, 2.4, LABELS, WIDTH - 20)
    title = "Measured: six categories on SmolLM2 on this CPU, speedup"
    panel, y = charts.dots(y + 42, title, [*lines.items()], scale, (0.8, 1, 1.2, 1.4, 1.6, 1.8, 2, 2.2), base=1)
    about = "The same accepted lengths allow 1.7 to 3.7 on the card, and less than 1 on this processor for wide drafts."
    return charts.picture("What the machine does to a method's gain", about, [*parts, *panel], y - 8)


def short(category: str) -> str:
    """The name of a category, so that it fits next to a panel."""
    return category.replace("retrieval-augmented generation", "retrieval").replace(
        "mathematical reasoning", "mathematics"
    )
