"""A controller that begins with costs of ``spec bench step --out``."""

from __future__ import annotations

import json

import pytest
from spec_control.auto import Auto
from spec_costs.file import Costs, StepCost, as_json, machine

from spec_core import Run, UsageError
from spec_core.testing import ToyTarget

STEPS = [StepCost(1, 64, 1, 0.010), StepCost(1, 64, 5, 0.015), StepCost(2, 64, 1, 0.012), StepCost(2, 64, 5, 0.030)]


def written(folder, made, **changed):
    path = folder / "costs.json"
    path.write_text(json.dumps(as_json(Costs(machine(made) | changed, STEPS))), "utf-8")
    return str(path)


def test_costs_of_a_file_are_known_before_the_first_step(tmp_path):
    target = ToyTarget(recurrent=False)
    auto = Auto(costs=written(tmp_path, target))
    Run(target, [("auto", auto)])
    known = auto.pacer.machine

    assert known.costs(1, 64).forwards.at(5) == pytest.approx(1.5)
    assert known.costs(2, 64).forwards.at(10) == pytest.approx(2.5)
    assert known.costs(1, 64).forwards.knows(5)
    assert not Auto().pacer.machine.costs(1, 64).forwards.knows(5)


def test_real_steps_replace_them(tmp_path):
    target = ToyTarget(recurrent=False)
    auto = Auto(costs=written(tmp_path, target))
    Run(target, [("auto", auto)])
    curve = auto.pacer.machine.costs(1, 64).forwards
    for _ in range(9):
        curve.add(5, 4.0)

    assert curve.at(5) == 4.0


def test_costs_of_another_model_are_refused(tmp_path):
    target = ToyTarget(recurrent=False)
    with pytest.raises(UsageError, match="measured with target 'another'"):
        Run(target, [("auto", Auto(costs=written(tmp_path, target, target="another")))])


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_a_file_without_costs_is_refused(tmp_path, content):
    (tmp_path / "costs.json").write_text(content, "utf-8")
    with pytest.raises(UsageError, match="spec bench step --out"):
        Run(ToyTarget(recurrent=False), [("auto", Auto(costs=str(tmp_path / "costs.json")))])
