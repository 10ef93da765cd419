"""A rule that wraps the draft hook: it reads the drafts of every step before the target's forward."""

from __future__ import annotations

import pytest
from toys import Fixed

from spec_core import Compat, Draft, Run, hookimpl
from spec_core.testing import ToyTarget


class Reads:
    """A rule that leaves all decisions to the default."""

    def __init__(self):
        self.drafted = []

    @hookimpl
    def compat(self):
        return Compat(drafts=())

    @hookimpl(wrapper=True)
    def draft(self, step):
        before = [part.drafted for part in step.parts]
        yield
        assert before == [0] * len(before)
        self.drafted += [part.drafted for part in step.parts]

    @hookimpl
    def accept(self, step):
        """Decides nothing."""


@pytest.mark.parametrize("draft_max", [0, 2])
def test_it_is_called_in_every_step_after_the_methods(draft_max):
    rule, calls = Reads(), []
    method = Fixed(lambda step, seq, budget: calls.append(step.number) or Draft([1, 2][:budget]))
    run = Run(ToyTarget(recurrent=False), [method], rule=rule, draft_max=draft_max)
    steps = []
    run.observe(lambda step: steps.append([part.drafted for part in step.parts]))
    tokens = run.generate([5, 6], max_tokens=12).result.tokens

    assert tokens == Run(ToyTarget(recurrent=False)).generate([5, 6], max_tokens=12).result.tokens
    assert rule.drafted == [count for step in steps for count in step]
    assert bool(calls) == bool(draft_max)


def test_it_is_no_controller():
    rule = Reads()
    run = Run(ToyTarget(recurrent=False), [Fixed(lambda step, seq, budget: Draft([1]))], rule=rule, control="fixed")

    assert not [chosen.name for chosen in run.plugins if chosen.controls]
    assert run.generate([5, 6], max_tokens=4, control=False).result.tokens
    assert rule.drafted
