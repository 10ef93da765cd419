"""The time that a method adds to a step, by the length of its draft; times are not asserted."""

from __future__ import annotations

from spec_costs import drafting
from spec_costs.drafting import Lengths

from spec_core import Request, Run
from spec_core.testing import Oracle, QuickTarget

PROMPTS = {f"text {i}": [1 + i, 2, 3] for i in range(4)}


def texts(target) -> dict[str, list[int]]:
    with Run(target, reuse=False) as run:
        return {name: run.generate(p, max_tokens=40).result.tokens for name, p in PROMPTS.items()}


def measure_steps(repeats: int = 1) -> tuple[dict[int, list[float]], list[str]]:
    """Steps of a drafter that proposes eight tokens wherever it may, by their length; and the texts that ran."""
    target = QuickTarget()
    known = {name: PROMPTS[name] + tokens for name, tokens in texts(target).items()}
    asked = []

    def requests():
        for name, prompt in PROMPTS.items():
            asked.append(name)
            yield Request(prompt, max_tokens=40, name=name)

    def make(lengths: Lengths) -> Run:
        return Run(target, [("lengths", lengths), ("oracle", Oracle(known, length=8))], draft_max=8)

    return drafting.measure_drafting(make, requests(), 8, repeats), asked


def test_every_length_is_drafted_in_turns():
    costs, _ = measure_steps()

    assert {1, 2, 4, 8} <= set(costs)
    assert all(seconds > 0 for k, times in costs.items() for seconds in times if k)


def test_it_stops_when_every_length_was_drafted_often_enough():
    assert measure_steps(repeats=1)[1] == ["text 0", "text 1"], "the first text is the warm-up"
    assert measure_steps(repeats=10**6)[1] == list(PROMPTS)


def test_the_seconds_of_a_method_are_those_of_drafting_and_learning():
    spent = {"draft.a": 1.0, "draft.b": 2.0, "process.a": 4.0, "verify": 8.0, "accept.x": 16.0, "rollback.y": 32.0}

    assert drafting.method_seconds(spent) == 7.0
