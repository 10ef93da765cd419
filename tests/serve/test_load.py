"""Load with clients that behave badly and parts that fail: no wrong text, no slot lost, clear refusals.

``python tests/campaigns/faults.py`` does it for half an hour.
"""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support import faults
from tests.support.faults import Load


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "every"), [(6, 0.5), pytest.param(60, 2, marks=pytest.mark.release)])
def test_faults_harm_nobody_else(seconds, every):
    """every: seconds between two forwards that raise."""
    summary = Load("zoo:pico", seconds, fault_every=every).run()

    assert summary["wrong"] == []
    assert (
        summary["texts"] > seconds / 2 and summary["bad"] > 1.6 * seconds and summary["faults"] >= seconds / every / 3
    )


@pytest.mark.parametrize("broken", ["text", "refusal"])
def test_what_is_wrong_is_found(broken, monkeypatch):
    """A text that is another one; a bad request that is not refused."""
    if broken == "text":
        monkeypatch.setattr(faults, "Run", lambda target: faults_run(target))
    else:
        monkeypatch.setattr(faults, "KINDS", [fail])

    assert Load("zoo:pico", 1, fault_every=0).run()["wrong"]


def faults_run(target):
    """A run alone that does not know the seed."""
    from contextlib import nullcontext
    from types import SimpleNamespace

    result = SimpleNamespace(result=SimpleNamespace(text="another text"))
    return nullcontext(SimpleNamespace(generate=lambda request: result))


def fail(server, rng):
    raise AssertionError("a bad request was answered with 200")
