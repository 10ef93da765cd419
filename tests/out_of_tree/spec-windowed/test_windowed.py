"""Tests of spec-windowed: the kit's promises, and texts that are plain, through the server, too."""

import pytest
from spec_windowed import Windowed

from spec_core import Refused, Run, load
from spec_core.testing import DrafterConformance

PROMPTS = ["def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n", "x = [1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1, "]


class TestWindowed(DrafterConformance):
    def make(self):
        return Windowed(window=8, sinks=2, draft_max=3, p_min=0.0)

    def target(self):
        return load("zoo:pico", threads=1)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "loading", [{}, {"kernels": "reference"}, {"cache_dtype": "q8"}], ids=["native", "reference", "q8"]
)
def test_texts_are_plain_alone_and_in_a_batch(check_plain, temperature, loading):
    make = lambda: Windowed(window=16, sinks=2)

    assert check_plain(make, temperature, prompts=PROMPTS, **loading)["accepted"] > 0


def test_a_window_over_the_whole_text_drafts_what_the_target_chooses():
    """And a narrow one does not."""
    for settings, all_accepted in (({"window": 64}, True), ({"window": 1, "sinks": 0}, False)):
        result = Run("zoo:pico", [Windowed(p_min=0.0, **settings)]).generate(PROMPTS[0], max_tokens=24).result
        assert (result.stats["accepted"] == result.stats["drafted"]) is all_accepted


def test_other_targets_are_refused_by_name():
    with pytest.raises(Refused, match="runs a part of the target's blocks, pico-hybrid cannot: its recurrent"):
        Run("zoo:pico-hybrid", [Windowed()])
