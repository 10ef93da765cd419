"""Tests of spec-contrast: the kit's promises under the rule, and that the text is another than the target's."""

import pytest
from spec_contrast import Contrast

from spec_core import Refused, Run
from spec_core.testing import RuleConformance, ToyTarget


class WithToys(Contrast):
    def open_model(self, target):
        self.model = ToyTarget(seed=1, vocab=target.info.vocab, recurrent=False)


class TestContrast(RuleConformance):
    def make(self):
        return WithToys("toy")


def test_the_text_is_steered_and_says_so():
    target = ToyTarget(recurrent=False)
    runs = [Run(target, [], rule=rule) for rule in (None, ("contrast", WithToys("toy", weight=4.0)))]
    results = [run.generate([9, 2], max_tokens=24).result for run in runs]

    assert results[0].tokens != results[1].tokens
    assert [one.stats["steers"] for one in results] == [None, "contrasts the model with toy"]


def test_without_a_small_model_it_is_refused():
    with pytest.raises(Refused, match="no small model"):
        Run(ToyTarget(recurrent=False), [], rule=Contrast())
