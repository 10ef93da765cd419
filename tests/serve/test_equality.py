"""Each text of the server is that of a run alone with its seed, whoever else is served at the time."""

from __future__ import annotations

import attrs
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import Run, load
from tests.support.served import Got, answers, requests, serving, wrong

METHODS = ["forced", "ngram", "draft-model", "suffix"]


@pytest.mark.parametrize("model", ["zoo:pico", "zoo:pico-hybrid"])
def test_texts_are_those_of_a_run_alone(model):
    """30 requests at random times, with random lengths, seeds, methods, schemas and cancels; 1, 3 and 8 at once."""
    target = load(model)
    with serving(target, METHODS, max_sequences=4) as server:
        for seed, concurrency in ((1, 1), (2, 3), (3, 8)):
            many = requests(seed, 10, METHODS)
            assert wrong(target, many, answers(server.url, many, concurrency)) == []
    assert not server.engine.jobs and not server.engine.open


def test_a_wrong_text_is_found():
    """The comparison above can fail: another text, another end, more than the beginning of a text."""
    target = load("zoo:pico")
    (asked,) = requests(1, 1, METHODS)
    asked = attrs.evolve(asked, cut=None)
    with Run(target) as run:
        right = run.generate(asked.request).result
    assert wrong(target, [asked], [Got(right.text, right.finish_reason)]) == []
    assert wrong(target, [asked], [Got(right.text + "x", right.finish_reason)])
    assert wrong(target, [asked], [Got(right.text, "cancelled")])
    assert wrong(target, [asked], [Got(right.text, None)])
    assert wrong(target, [attrs.evolve(asked, cut=1)], [Got(right.text[:2], None)]) == []
