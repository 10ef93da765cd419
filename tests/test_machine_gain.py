"""The gains of benchmarks/results/machine-gain.json follow from its costs, and from accepted lengths."""

from __future__ import annotations

import json

import pytest

from benchmarks import machine_gain
from benchmarks.support.results import read_table
from tools import block_trees
from tools.machine_gain import FILE, METHODS, figure, records


def test_gains_are_accepted_lengths_by_the_costs_of_their_rows():
    costs = {r["machine"]: r for r in records("cost of a step")}
    for r in records("gains from published accepted lengths"):
        for machine, line in costs.items():
            points = {n: float(line[f"T({n}) / T(1)"]) for n in machine_gain.ROWS}
            gain = machine_gain.gain(float(r["accepted length"]), int(r["rows of a step"]), machine_gain.cost(points))
            assert float(r[machine]) == pytest.approx(gain, abs=0.02)
            assert float(r[machine]) <= float(r["accepted length"])


def test_the_cost_of_rows_between_measured_ones_lies_between_theirs():
    step = machine_gain.cost({1: 1.0, 8: 2.0, 16: 4.0})
    assert (step(1), step(8), step(12), step(16), step(32)) == (1.0, 2.0, 3.0, 4.0, 8.0)
    assert machine_gain.gain(3.0, 12, step) == 1.0


def test_given_figures_of_the_card_are_those_of_the_other_calculation():
    costs = {n: us / machine_gain.GIVEN[1] for n, us in machine_gain.GIVEN.items()}
    assert costs == {n: pytest.approx(cost, abs=1e-3) for n, cost in block_trees.H200.items()}


def test_six_categories_have_six_prompts_each_in_spec_benchs_form():
    questions = [json.loads(line) for line in machine_gain.PROMPTS.read_text("utf-8").splitlines()]
    names = [q["category"] for q in questions]

    assert all(set(q) == {"question_id", "category", "turns"} and all(q["turns"]) for q in questions)
    assert {name: names.count(name) for name in names} == dict.fromkeys(names, 6) and len(set(names)) == 6
    shown = {r["category"] for r in records("six categories")}
    assert shown == {*names, "all"}
    assert len(read_table(FILE, "six categories")["rows"]) == len(shown) * len(METHODS)


def test_the_figure_names_every_machine_and_category():
    text = figure()
    assert all(name in text for name in ("H200, given", "this CPU", "RTX 3090, published", "translation", "retrieval"))
