"""Warnings of ``spec bench`` about doubtful figures, on constructed figures; nothing is timed."""

from __future__ import annotations

import pytest
from spec_bench.cost_warnings import CHEAPER, of_products, of_steps
from spec_bench.products import Product
from spec_bench.step import Cost
from spec_commands.timing_warnings import SCATTER


def cost(rows: int, forward: float, median: float | None = None, depth: int = 64) -> Cost:
    return Cost(rows, 1, depth, forward, forward if median is None else median, 0.1, 0.1, 1.0, 1.0, None)


def kinds_and_names(costs: list[Cost]) -> list[tuple[str, str | None]]:
    return [(c.kind, c.about) for c in of_steps(costs)]


def test_quiet_steps_are_not_doubted():
    assert kinds_and_names([cost(1, 1.0, 1.1), cost(2, 1.0), cost(8, 2.0)]) == []


@pytest.mark.parametrize(("median", "doubted"), [(SCATTER * 0.99, False), (SCATTER * 1.01, True)])
def test_repeats_that_scatter_are_doubted(median, doubted):
    assert kinds_and_names([cost(2, 1.0, median)]) == ([("scatter", "depth 64, batch 1, 2 rows")] if doubted else [])


@pytest.mark.parametrize(("forward", "doubted"), [(CHEAPER * 1.01, False), (CHEAPER * 0.99, True)])
def test_more_rows_for_less_time_are_doubted(forward, doubted):
    assert kinds_and_names([cost(8, forward), cost(1, 1.0)]) == (
        [("bound", "depth 64, batch 1, 8 rows")] if doubted else []
    )


def test_steps_of_another_depth_may_cost_less():
    assert kinds_and_names([cost(1, 2.0, depth=448), cost(2, 1.0)]) == []


def test_products_that_scatter_are_doubted():
    medians = {1: 1.1, 2: 2.0}
    quiet, disturbed = (Product("Q8_0", "int8", "cached", n, 1.0, m, 1.0, 1, 1) for n, m in medians.items())

    assert [c.text for c in of_products([quiet, disturbed])] == [
        "Q8_0, int8, cached, 2 rows: the median of the repeats is 2.0 times the fastest one: "
        "measure again on a quiet machine, with more --repeats"
    ]
