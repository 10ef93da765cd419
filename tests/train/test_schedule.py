"""A resumed training continues its clock."""

from __future__ import annotations

import pytest
from spec_train.training import schedule
from spec_train.training.schedule import Clock


def test_shares_rise_to_one_and_include_the_time_before_an_interruption(monkeypatch):
    """Ten seconds a step, of two minutes; half a minute was spent before."""
    now = iter(range(0, 10_000, 10))
    monkeypatch.setattr(schedule.time, "monotonic", lambda: float(next(now)))
    clock = Clock(2.0, 30.0)

    shares = list(clock.shares())

    assert shares == pytest.approx([40 / 120, 50 / 120, 60 / 120, 70 / 120, 80 / 120, 90 / 120, 100 / 120, 110 / 120])
    assert clock.spent == 120.0
