"""What a chain and trees of a block bring, by the accepted length of the chain and the cost of rows: a calculation.

Only the costs are measured; beyond the last measured number of rows they grow as between the last two. A token is
the most likely one of its row with chance p, the next one with p (1 - p), and so on, at every depth alike; p follows
from the tokens of a step of a chain. A tree has the most likely paths.
"""

from __future__ import annotations

from heapq import heappop, heappush

from benchmarks.support.results import read_table
from tools import charts
from tools.charts import LABELS, WIDTH, Dot, Scale

DEPTH = 15
"""Longest path: a block of 16."""
LENGTHS = (2, 3, 4, 6, 8)
"""Tokens of a step of a chain, the target's own included."""
TREES = (16, 32, 60)
"""Tokens of a tree."""
Costs = dict[int, float]
"""Time of a forward by rows, over that with one row."""
H200: Costs = {1: 1.0, 8: 1.006, 16: 1.017, 32: 1.095, 64: 1.196}
AVX2: Costs = {1: 1.0, 2: 1.27, 4: 1.91, 8: 3.38}


def measured_costs(model: str) -> Costs:
    """Of a model in the verify curve of ``benchmarks/results``."""
    table = read_table("verify-curve", "milliseconds of a forward")
    cells = next(row for row in table["rows"] if row[0] == model)
    named = zip(table["columns"], cells, strict=True)
    times = {int(column[2:-1]): float(cell) for column, cell in named if column.startswith("T(") and cell}
    return {rows: time / times[1] for rows, time in times.items()}


def machines() -> dict[str, Costs]:
    return {
        "H200, 8 B": H200,
        "Zen 5 with VNNI, SmolLM2": measured_costs("SmolLM2 Q4_1"),
        "Zen 3 with AVX2, SmolLM2": AVX2,
    }


def chance_of(length: float) -> float:
    """The chance of the most likely token, by the tokens of a step of a chain."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        low, high = (p, high) if tokens_of_chain(p, DEPTH) < length else (low, p)
    return low


def tokens_of_chain(p: float, drafted: int) -> float:
    return sum(p**i for i in range(drafted + 1))


def tokens_of_tree(p: float, nodes: int) -> float:
    """Tokens of a step with the ``nodes`` most likely tokens of a tree."""
    waiting, tokens = [(-p, 1)], 1.0
    for _ in range(nodes):
        chance, depth = heappop(waiting)
        tokens -= chance
        heappush(waiting, (chance * (1 - p), depth))  # the next token of the same row
        if depth < DEPTH:
            heappush(waiting, (chance * p, depth + 1))
    return tokens


def cost(rows: int, costs: Costs) -> float:
    """Time of a forward with some rows over that with one."""
    known = sorted(costs)
    high = next((n for n in known[1:] if n >= rows), known[-1])
    low = known[known.index(high) - 1]
    return costs[low] + (costs[high] - costs[low]) * (rows - low) / (high - low)


def speedups(length: float, costs: Costs) -> list[float]:
    """Of the best chain, then of each tree, over plain decoding. The drafter's own time is left out."""
    p = chance_of(length)
    chain = max(tokens_of_chain(p, n) / cost(n + 1, costs) for n in range(DEPTH + 1))
    return [chain, *(tokens_of_tree(p, nodes) / cost(nodes + 1, costs) for nodes in TREES)]


def figure() -> str:
    """Speedups of chain and trees, a panel a machine."""
    parts, y = charts.legend(24, ["best chain", *(f"tree of {n}" for n in TREES)]), 54.0
    for machine, costs in machines().items():
        rows = [
            (f"{length} tokens a step", [Dot(i, value) for i, value in enumerate(speedups(length, costs))])
            for length in LENGTHS
        ]
        panel, y = charts.dots(y, machine, rows, Scale(0, 10, LABELS, WIDTH - 20), range(0, 11, 2), base=None)
        parts += panel
    about = "On a card every tree is above the chain; on both processors every tree is below it."
    return charts.picture("Speedup of chains and trees by accepted length and cost of rows", about, parts, y - 8)
