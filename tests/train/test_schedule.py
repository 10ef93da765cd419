"""The time of a training goes on where it was."""

from __future__ import annotations

import pytest
from spec_train import loop
from spec_train.loop import Clock


def test_shares_go_up_to_one_and_what_was_spent_counts(monkeypatch):
    """Ten seconds a step, of two minutes, half a minute of which was spent before."""
    now = iter(range(0, 10_000, 10))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(now)))
    clock = Clock(2.0, 30.0)

    shares = list(clock.shares())

    assert shares == pytest.approx([40 / 120, 50 / 120, 60 / 120, 70 / 120, 80 / 120, 90 / 120, 100 / 120, 110 / 120])
    assert clock.spent == 120.0
