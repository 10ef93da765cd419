"""Random requests on models with recurrent layers: see state_fuzz.py."""

from __future__ import annotations

import pytest
import torch

from tests.methods.block_fuzz import Report
from tests.methods.state_fuzz import CASES, fuzz


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.repeats(23)
@pytest.mark.parametrize(("name", "of"), CASES)
def test_texts_and_states_are_those_of_plain_decoding(name, of):
    report = Report()
    fuzz(name, of, 0, 4, report)

    assert report.differing == []
    assert report.counts["requests"] == 4 and report.counts["states"] > 0


def test_the_runs_of_the_suite_meet_what_requests_can_be():
    report = Report()
    for seed in range(6):
        fuzz("suffix-tree", "kimi-linear", seed, 8, report)

    assert report.differing == []
    assert all(report.counts[what] > 0 for what in ("accepted", "branching", "sampled", "context", "reused"))
