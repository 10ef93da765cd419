"""Random requests with block drafters: see block_fuzz.py."""

from __future__ import annotations

import attrs
import pytest
import torch

from spec_core import Request, Run
from tests.methods.block_fuzz import ASSISTED, CONTEXT, HEADS, Report, fuzz, fuzz_assistant
from tests.methods.heads import tiny


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", HEADS)
def test_random_requests_have_their_plain_texts(name):
    report = Report()
    for seed, of in enumerate(CONTEXT):
        for tree in (False, True):
            fuzz(name, of, tree, seed, 8, report)
    counts = report.counts

    assert report.differing == []
    assert counts["requests"] == 48
    assert counts["accepted"] > 10
    assert all(counts[what] for what in ("branching", "cancelled", "context"))
    assert counts["sampled"] < counts["requests"]


@pytest.mark.parametrize("name", ASSISTED)
def test_random_requests_with_an_assistant_have_their_plain_texts(name):
    report = Report()
    for seed in range(5):
        fuzz_assistant(name, seed, 8, report)

    assert report.differing == []
    assert report.counts["requests"] == 40
    assert report.counts["accepted"] > 10
    assert all(report.counts[what] for what in ("cancelled", "context", "sampled"))


def test_a_text_that_is_not_plain_is_reported():
    request, label = Request([1, 2, 3], max_tokens=4, name="0"), "dspark dense chain"
    plain = Run(tiny("dense")).generate(request).result
    others = {"tokens": [*plain.tokens[:-1], plain.tokens[-1] ^ 1], "finish_reason": "stop"}
    report = Report()
    report.compare(label, 256, request, plain, plain)
    assert report.differing == []

    for field, value in others.items():
        report.compare(label, 256, request, attrs.evolve(plain, **{field: value}), plain)
    report.compare(label, 256, request, attrs.evolve(plain, tokens=[0], finish_reason="cancelled"), plain)
    assert len(report.differing) == 3
