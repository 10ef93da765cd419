"""A measurement on a terminal: lines that follow each other, and nothing that is written over."""

from __future__ import annotations

import pytest

pytest.importorskip("pyte", reason="renders a terminal")

from tests.support.terminal import run


def test_a_measurement_writes_over_nothing():
    terminal = run("bench", "step", "-m", "zoo:pico", "--rows", "1,2", "--depth", "16", "--threads", "1")

    screen = terminal.screen()
    assert terminal.process.returncode == 0, screen
    assert screen[0].startswith("pico on cpu") and any("T(n) ms" in line for line in screen)
    assert b"\r " not in terminal.data and b"\x1b[" not in terminal.data
