"""The method ``forced``: it drafts what a constraint leaves no choice about, and keeps what methods promise."""

from __future__ import annotations

import attrs
import pytest
from spec_grammar.forced import Forced

from spec_core import Request, Run
from spec_core.testing import DrafterConformance, Oracle, ToyConstraint, ToyTarget

NARROW = ToyConstraint(share=0.02, length=24)
"""Mostly one token is allowed."""


AFTER = "the text so far becomes a prompt there, and a constraint begins after the prompt"


class Constrained:
    """Every request of the kit has a constraint: without one the method drafts nothing."""

    def make(self):
        return Forced(extend=self.extend)

    def requests(self, n=14, temperatures=None, **more):
        more = {"constraint": ToyConstraint(share=0.02), **more}
        return [attrs.evolve(r, ignore_eos=False) for r in super().requests(n, temperatures, **more)]

    def test_drafts_equal_those_of_a_fresh_instance(self):
        pytest.skip(AFTER)

    def test_asked_after_a_thousand_steps(self):
        pytest.skip(AFTER)


class TestForced(Constrained, DrafterConformance):
    extend = False


class TestForcedThatExtends(Constrained, DrafterConformance):
    extend = True


def test_without_a_constraint_it_drafts_nothing():
    result = Run(ToyTarget(recurrent=False), [Forced()]).generate([1, 2], max_tokens=6).result

    assert result.stats["drafted"] == 0


def test_all_it_drafts_of_a_narrow_constraint_is_kept():
    request = Request([1, 2, 3], max_tokens=30, constraint=NARROW)
    plain = Run(ToyTarget(recurrent=False)).generate(request).result

    result = Run(ToyTarget(recurrent=False), [Forced()]).generate(request).result

    assert result.tokens == plain.tokens
    assert result.stats["draft_acceptance"] == 1
    assert result.stats["steps"] < plain.stats["steps"]


def extend_oracle(extend: bool) -> Run:
    """The first two tokens come from an oracle; what is forced after them may extend its draft."""
    request = Request([1, 2, 3], max_tokens=30, constraint=NARROW, name="a")
    known = [*request.prompt, *Run(ToyTarget(recurrent=False)).generate(request).result.tokens]
    run = Run(ToyTarget(recurrent=False), [Oracle({"a": known}, lambda i, seq: True, length=1), Forced(extend=extend)])
    run.generate(request).result
    return run


def test_it_extends_drafts_of_others():
    steps = [extend_oracle(extend).stats.report()["steps"] for extend in (False, True)]

    assert steps[1] < steps[0]


@pytest.mark.parametrize("draft_max", [1, 3])
def test_a_draft_is_at_most_as_long_as_its_setting(draft_max):
    lengths = []
    run = Run(ToyTarget(recurrent=False), [Forced(draft_max=draft_max)])
    run.observe(lambda step: lengths.extend(part.drafted for part in step.parts))
    run.generate([1, 2, 3], max_tokens=30, constraint=NARROW).result

    assert max(lengths) == draft_max
