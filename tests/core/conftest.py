"""A method that makes texts last, for programs on a terminal."""

from __future__ import annotations

import os

import pytest

SLOW = """
from time import sleep
from spec_core import hookimpl
class Slow:
    @hookimpl
    def process(self, rows):
        sleep(0.15)
"""


@pytest.fixture
def slow(tmp_path):
    """A method that makes a text last for seconds, as a package of a stranger."""
    folder = tmp_path / "slow-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n", "utf-8")
    (folder / "entry_points.txt").write_text("[spec_core.methods]\nslow = slow_method:Slow\n", "utf-8")
    (tmp_path / "slow_method.py").write_text(SLOW, "utf-8")
    return os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
