"""Free memory: as the system reports it, and without a report."""

from __future__ import annotations

import os
import sys

from spec_kernels import machine
from spec_kernels.machine import free_bytes


def test_it_counts_what_the_system_would_give_back():
    """Page cache counts as free: that of a model that was just read is no reason to refuse it."""
    unused = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")

    assert unused / 2 < free_bytes("cpu") < 1 << 50


def test_a_system_that_says_nothing_refuses_nothing(monkeypatch):
    monkeypatch.setattr(machine, "_available", lambda: 0)
    monkeypatch.delattr(os, "sysconf")

    assert free_bytes("cpu") == sys.maxsize
