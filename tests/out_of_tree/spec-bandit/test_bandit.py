"""Tests of spec-bandit: the kit's promises, and that the better method is used."""

from spec_bandit import Bandit

from spec_core import Run
from spec_core.testing import ControllerConformance, Oracle, ToyTarget

PROMPT = [3, 1, 4]


class TestBandit(ControllerConformance):
    def make(self):
        return Bandit()


def test_the_method_that_is_right_drafts_most():
    """One drafter is always wrong, named first; the other is always right."""
    plain = Run(ToyTarget(recurrent=False)).generate(PROMPT, max_tokens=120).result.tokens
    text = {"pi": [*PROMPT, *plain]}
    methods = [("wrong", Oracle(text, right=lambda i, seq: False)), ("right", Oracle(text)), Bandit()]
    result = Run(ToyTarget(recurrent=False), methods).generate(PROMPT, max_tokens=120, name="pi").result

    drafts = {name: counted["drafts"] for name, counted in result.stats["methods"].items()}
    assert result.tokens == plain
    assert drafts["right"] > 4 * drafts["wrong"] > 0
