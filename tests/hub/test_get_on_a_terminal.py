"""``spec get`` on a terminal: its bar is gone when the paths are printed."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyte", reason="renders a terminal")

from tests.support.terminal import run

DATA = random.Random(2).randbytes(3_000_000)


def test_a_download_leaves_its_path_and_no_bar(hub, tmp_path):
    hub.add("o/n", **{"x-Q4_K_M.gguf": DATA})
    variables = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(tmp_path / "home" / "cache"), "HF_TOKEN": ""}
    terminal = run("get", "hub:o/n:Q4_K_M", **variables)

    screen = terminal.screen()
    assert terminal.process.returncode == 0, screen
    assert "x-Q4_K_M.gguf" in "".join(screen)
    assert not any("━" in line for line in screen)
    assert b"x-Q4_K_M" in terminal.data
