"""What a chain and trees of a block bring, by the accepted length of the chain and the cost of rows: a calculation.

Nothing here is measured but the costs. A token is the likeliest of its row with chance p, the next one with p (1 - p),
and so on, at every depth alike; p follows from the tokens of a step of a chain. A tree has the likeliest paths.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tools import charts
from tools.charts import LABELS, WIDTH, Dot, Scale

DEPTH = 15
"""Longest path: a block of 16."""
LENGTHS = (2, 3, 4, 6, 8)
"""Tokens of a step of a chain, the target's own included."""
TREES = (16, 32, 60)
"""Tokens of a tree."""
H200 = {1: 1.0, 8: 1.006, 16: 1.017, 32: 1.095, 64: 1.196}
"""Time of a forward of 8 B parameters by rows, over that of one row, measured on an H200."""
MACHINES = {"H200, 8 B": None, "CPU with VNNI": 0.15, "CPU with AVX2": 0.34}
"""Cost of a further row over that of a forward with one; None: ``H200``."""


def chance_of(length: float) -> float:
    """The chance of the likeliest token, by the tokens of a step of a chain."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        low, high = (p, high) if tokens_of_chain(p, DEPTH) < length else (low, p)
    return low


def tokens_of_chain(p: float, drafted: int) -> float:
    return sum(p**i for i in range(drafted + 1))


def tokens_of_tree(p: float, nodes: int) -> float:
    """Tokens of a step with the ``nodes`` likeliest tokens of a tree."""
    waiting, tokens = [(-p, 1)], 1.0
    for _ in range(nodes):
        chance, depth = heappop(waiting)
        tokens -= chance
        heappush(waiting, (chance * (1 - p), depth))  # the next token of the same row
        if depth < DEPTH:
            heappush(waiting, (chance * p, depth + 1))
    return tokens


def cost(rows: int, further: float | None) -> float:
    """Time of a forward with some rows over that with one."""
    if further is not None:
        return 1 + further * (rows - 1)
    low, high = max(n for n in H200 if n <= rows), min(n for n in H200 if n >= rows)
    return H200[low] + (H200[high] - H200[low]) * (rows - low) / max(1, high - low)


def speedups(length: float, further: float | None) -> list[float]:
    """Of the best chain, then of each tree, over plain decoding. The drafter's own time is left out."""
    p = chance_of(length)
    chain = max(tokens_of_chain(p, n) / cost(n + 1, further) for n in range(DEPTH + 1))
    return [chain, *(tokens_of_tree(p, nodes) / cost(nodes + 1, further) for nodes in TREES)]


def figure() -> str:
    """Speedups of chain and trees, a panel a machine."""
    parts, y = charts.legend(24, ["best chain", *(f"tree of {n}" for n in TREES)]), 54.0
    for machine, further in MACHINES.items():
        rows = [
            (f"{length} tokens a step", [Dot(i, value) for i, value in enumerate(speedups(length, further))])
            for length in LENGTHS
        ]
        panel, y = charts.dots(y, machine, rows, Scale(0, 10, LABELS, WIDTH - 20), range(0, 11, 2), base=None)
        parts += panel
    about = "On a card every tree is above the chain; with AVX2 every tree is below it."
    return charts.picture("Speedup of chains and trees by accepted length and cost of rows", about, parts, y - 8)
