"""Files of costs: what was written is read, and a file that is none is refused with a reason."""

from __future__ import annotations

import json

import pytest
from spec_costs.file import Costs, DraftCost, StepCost, as_json, machine, read_costs

from spec_core import UsageError
from spec_core.testing import QuickTarget

COSTS = Costs(
    machine(QuickTarget()),
    [StepCost(1, 64, 1, 0.25), StepCost(1, 64, 5, 0.5), StepCost(4, 64, 1, 0.75)],
    [DraftCost("ngram", 0, 0.0, 10), DraftCost("ngram", 4, 0.125, 9)],
)


@pytest.fixture
def write(tmp_path):
    """Write a body as a file; returns its path."""

    def write(body) -> object:
        path = tmp_path / "costs.json"
        path.write_text(json.dumps(body))
        return path

    return write


def test_costs_that_were_written_are_read(write):
    costs = read_costs(write(as_json(COSTS, load={"others": 0})))

    assert costs == COSTS
    assert costs.curves(1).at(64)(3) == 0.375
    assert (costs.drafts("ngram")(2), costs.drafts("suffix")) == (0.0625, None)


def test_costs_of_another_batch_are_named():
    with pytest.raises(UsageError, match="batch 2, only: 1, 4"):
        COSTS.curves(2)


def test_costs_of_another_model_are_refused():
    COSTS.check(QuickTarget())
    with pytest.raises(UsageError, match="with target 'quick-0', but here it is 'quick-1'"):
        COSTS.check(QuickTarget(seed=1))


STEP = {"batch": 1, "depth": 1, "rows": 1, "seconds": 1.0}
DRAFT = {"method": "x", "drafts": 0, "seconds": 1.0, "steps": 1}
MALFORMED = {
    "another format": ({"format": "other"}, "its format is not 'spec-costs'"),
    "a list": ([], "its format is not"),
    "a later version": ({"version": "2.0"}, "version '2.0' of spec-costs is not 1.0"),
    "no steps": ({"steps": None}, "steps must be a list"),
    "no seconds": ({"steps": [{**STEP, "seconds": 0}]}, "seconds must be seconds, not 0"),
    "not finite": ({"steps": [{**STEP, "seconds": float("nan")}]}, "seconds must be seconds, not nan"),
    "a text": ({"steps": [{**STEP, "rows": "1"}]}, "rows must be int, not '1'"),
    "a truth value": ({"steps": [{**STEP, "rows": True}]}, "rows must be int, not True"),
    "too many rows": ({"steps": [{**STEP, "rows": 1 << 60}]}, "rows must be between 1 and"),
    "negative": ({"drafting": [{**DRAFT, "drafts": -1}]}, "drafts must be between 0 and"),
    "another field": ({"steps": [{**STEP, "more": 1}]}, "more"),
    "no machine": ({"machine": []}, "malformed"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused(write, name):
    change, message = MALFORMED[name]
    body = {**as_json(COSTS), **change} if isinstance(change, dict) else change

    with pytest.raises(UsageError, match=message):
        read_costs(write(body))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "cut", "binary", "deep"])
def test_a_file_that_is_no_json_is_refused(tmp_path, content):
    path = tmp_path / "costs.json"
    path.write_bytes(content)

    with pytest.raises(UsageError, match="costs cannot be read"):
        read_costs(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="costs cannot be read"):
        read_costs(tmp_path / "absent.json")
