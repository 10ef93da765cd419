"""Random partial forwards: the small form of ``tests/campaigns/partial_forwards.py``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.campaigns.partial_forwards import ROUND, TARGETS, play_round


@pytest.mark.parametrize("name", TARGETS)
def test_texts_are_plain_and_evaluated_rows_keep_their_bits(name):
    target, did = TARGETS[name](), Counter()
    for seed in (2, 3):
        play_round(target, seed, did)

    assert did["requests"] == 2 * ROUND
    assert min(did[kind] for kind in ("compared", "together", "drafted", "accepted", "reused")) > 0
