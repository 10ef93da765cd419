"""Tests of spec-layerskip: the kit's promises, with an early exit and with blocks left out."""

import pytest
from spec_layerskip import LayerSkip

from spec_core import Refused, Run, load
from spec_core.testing import DrafterConformance, ToyTarget
from spec_core.toolkit import partial_problem


class TestEarlyExit(DrafterConformance):
    def make(self):
        return LayerSkip(exit=6, draft_max=3, p_min=0.0)

    def target(self):
        return load("zoo:pico", threads=1)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("settings", [{"exit": 3}, {"exit": 7}, {"skip": "4+6"}, {"exit": 10, "window": 16}])
def test_texts_are_plain_alone_and_in_a_batch(check_plain, temperature, settings):
    assert check_plain(lambda: LayerSkip(**settings), temperature)["accepted"] > 0


def test_other_targets_are_refused_by_name():
    with pytest.raises(Refused, match="runs a part of the target's blocks, pico-hybrid cannot: its recurrent"):
        Run("zoo:pico-hybrid", [LayerSkip()])
    assert partial_problem(ToyTarget()) == "it does not run parts of its model"
    with pytest.raises(Refused, match="one must run and one be left out"):
        Run("zoo:pico", [LayerSkip(exit=10)])
