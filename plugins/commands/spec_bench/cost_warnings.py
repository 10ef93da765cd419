"""Warnings about the figures of ``spec bench``: repeats that scatter, more rows in less time, a busy machine."""

from __future__ import annotations

from itertools import groupby

from spec_commands.timing_warnings import QUIET, SCATTER, TimingWarning

from spec_bench.products import Product
from spec_bench.step import Cost

CHEAPER = 0.95
"""Tolerance of the check that more rows take more time; the fastest of many repeats varies by a few per cent."""


def of_steps(costs: list[Cost]) -> list[TimingWarning]:
    """Warnings about the forwards of every depth and batch."""
    warnings = [c for cost in costs for c in scatter_warnings(_name(cost), cost.forward, cost.forward_median)]
    for _, group in groupby(costs, key=lambda c: (c.depth, c.batch)):
        warnings += warn_about_bounds(list(group))
    return warnings


def of_products(products: list[Product]) -> list[TimingWarning]:
    named = ((f"{p.type}, {p.activations}, {p.size}, {p.rows} rows", p) for p in products)
    return [c for name, p in named for c in scatter_warnings(name, p.seconds, p.median)]


def scatter_warnings(name: str, best: float, median: float) -> list[TimingWarning]:
    """Warning if the median of the repeats is far above the fastest one."""
    if median <= SCATTER * best:
        return []
    message = f"{name}: the median of the repeats is {median / best:.1f} times the fastest one"
    return [TimingWarning("scatter", name, f"{message}: {QUIET}, with more --repeats")]


def warn_about_bounds(costs: list[Cost]) -> list[TimingWarning]:
    """Warnings if steps of one depth and batch take less time than steps with the fewest rows."""
    first = min(costs, key=lambda c: c.rows)
    cheap = [cost for cost in costs if cost.forward < CHEAPER * first.forward]
    message = f"took less time than {first.rows}: the forward of {first.rows} was disturbed; {QUIET}"
    return [TimingWarning("bound", _name(cost), f"{_name(cost)} {message}") for cost in cheap]


def _name(cost: Cost) -> str:
    return f"depth {cost.depth}, batch {cost.batch}, {cost.rows} rows"
