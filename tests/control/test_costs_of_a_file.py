"""A controller that begins with costs of ``spec bench step --out``."""

from __future__ import annotations

import json

import pytest
from spec_control.auto import Auto
from spec_costs.file import Costs, StepCost, as_json, machine

from spec_core import Run, UsageError
from spec_core.testing import ToyTarget

STEPS = [StepCost(1, 64, 1, 0.010), StepCost(1, 64, 5, 0.015), StepCost(2, 64, 1, 0.012), StepCost(2, 64, 5, 0.030)]


def write(folder, model, **changes):
    path = folder / "costs.json"
    path.write_text(json.dumps(as_json(Costs(machine(model) | changes, STEPS))), "utf-8")
    return str(path)


def test_costs_of_a_file_count_from_the_first_step_on(tmp_path):
    target = ToyTarget(recurrent=False)
    auto = Auto(costs=write(tmp_path, target))
    Run(target, [("auto", auto)])

    assert auto.planner.costs_of(1).at(5) == pytest.approx(1.5)
    assert auto.planner.costs_of(2).at(10) == pytest.approx(2.5)
    assert Auto().planner.costs_of(1).at(5) != pytest.approx(1.5)


def test_costs_of_another_model_are_refused(tmp_path):
    target = ToyTarget(recurrent=False)
    with pytest.raises(UsageError, match="measured with target 'another'"):
        Run(target, [("auto", Auto(costs=write(tmp_path, target, target="another")))])


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_a_file_without_costs_is_refused(tmp_path, content):
    (tmp_path / "costs.json").write_text(content, "utf-8")
    with pytest.raises(UsageError, match="spec bench step --out"):
        Run(ToyTarget(recurrent=False), [("auto", Auto(costs=str(tmp_path / "costs.json")))])
