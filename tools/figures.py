"""Figures of servers, extensions, acceptance rules and the controller, from files of ``benchmarks/results``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.support.results import read_table
from tools import charts
from tools.charts import LABELS, WIDTH, Dot, Scale

SERVERS = ("plain", "ngram, control=auto", "suffix, control=auto", "llama-server", "vLLM")
CHAINS = ("point-mass, greedy", "coupled", "rejection", "block", "bound")
SIBLINGS = ("k-seq", "rejection", "coupled", "bound, with replacement", "bound, without")
TREES = ("point-mass, top k", "k-seq", "rejection", "traversal", "coupled")
"""Series of the figures: columns or names of rows."""


def records(file: str, name: str) -> list[dict[str, str]]:
    """Rows of a table as {column: cell}."""
    table = read_table(file, name)
    return [dict(zip(table["columns"], cells, strict=True)) for cells in table["rows"]]


def interval_dot(series: int, cell: str) -> Dot:
    """A dot from a cell such as ``1.94 (1.70-2.23)`` or ``1.94× (1.70-2.23)``; without an interval, the value."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", cell)]
    return Dot(series, *numbers[:3])


def servers_figure() -> str:
    """Tokens per second of each server, a panel a number of requests at once."""
    parts, y = list[str](), 20.0
    for at_once in ("1", "4", "16"):
        rates = {r["server"]: float(r["tokens/s"]) for r in records("serving", "servers") if r["at once"] == at_once}
        rows = [(name, [rates[name]]) for name in SERVERS]
        scale = Scale(0, 300, LABELS, WIDTH - 20)
        panel, y = charts.bars(y, f"{at_once} at once: tokens per second", rows, scale, range(0, 301, 50))
        parts += panel
    about = "This server is the fastest at 1, 4 and 16 requests at once; drafts gain most with one request."
    return charts.picture("Tokens per second of servers", about, parts, y - 8)


def extensions_figure() -> str:
    """Speedups of methods alone, as fallbacks (+) and as extensions (++), a panel a model."""
    parts, y = charts.legend(24, ["control=fixed", "control=auto"]), 54.0
    for model in ("pico", "pico-hybrid"):
        rows = [
            (r["methods"].strip("`"), [interval_dot(0, r["both"]), interval_dot(1, r["auto"])])
            for r in records("extensions", model)
        ]
        scale = Scale(0.9, 2.7, LABELS, WIDTH - 20)
        panel, y = charts.dots(y, f"zoo:{model}, temperature 0", rows, scale, (1, 1.5, 2, 2.5), base=1)
        parts += panel
    about = (
        "Extensions of a drafter by a look-up are above the drafter; extensions of a look-up by a drafter are below it."
    )
    return charts.picture("Speedup of extensions and fallbacks", about, parts, y - 8)


def acceptance_figure() -> str:
    """Tokens per step of the rules for equal drafts: chains, siblings, trees."""
    parts, y = list[str](), 24.0
    for name, title, series, ticks in (
        ("chains of 4", "chains of 4: tokens per step", CHAINS, (1, 2, 3, 4)),
        ("siblings", "siblings: probability that one is accepted", SIBLINGS, (0.7, 0.8, 0.9, 1)),
        ("trees", "trees: tokens per step", TREES, (1, 2, 3, 4)),
    ):
        panel, y = _acceptance_panel(y, name, title, series, ticks)
        parts += panel
    about = "Among lossless rules block is best on chains; coupled and traversal are best on trees."
    return charts.picture("Acceptance of the rules for the same drafts", about, parts, y - 8)


def _acceptance_panel(
    y: float, name: str, title: str, series: Sequence[str], ticks: Sequence[float]
) -> tuple[list[str], float]:
    rows = [
        (
            r[name].replace(" tokens", "").replace(" = ", " "),
            [Dot(i, float(r[column])) for i, column in enumerate(series)],
        )
        for r in records("acceptance", name)
    ]
    panel, bottom = charts.dots(y + 30, title, rows, Scale(ticks[0], ticks[-1], LABELS, WIDTH - 20), ticks)
    return [*charts.legend(y, series), *panel], bottom


def _short_label(name: str) -> str:
    """``64 tokens, a = 0.1, σ = 1`` with fewer letters."""
    return name.replace(" tokens", "").replace(" = ", " ")


def short_runs_figure() -> str:
    """Speedups of the controller, and of the best fixed length, in short runs without other load."""
    parts, y = charts.legend(24, ["auto", "own settings", "best fixed length"]), 54.0
    rows = []
    for r in records("control", "short runs"):
        if r["busy"] == "no":
            cells = r["auto"], r["own settings"], r["best fixed"]
            label = f"{r['model'].strip('`')}, {r['method'].strip('`')}, {r['at once']}"
            dots = [Dot(i, float(cell.split()[0])) for i, cell in enumerate(cells) if cell]
            rows.append((label, dots))
    scale = Scale(0.9, 2.3, LABELS + 30, WIDTH - 20)
    panel, y = charts.dots(y, "speedup; the number is that of texts at once", rows, scale, (1, 1.5, 2), base=1)
    about = "The controller is within an eighth of the best fixed length, and loses little with wrong drafts."
    return charts.picture("Speedup of the controller in short runs", about, [*parts, *panel], y - 8)
