"""The test suite passes with plugins of other packages installed, also with names that the tests use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POINTS = {
    "methods": "repeat = strange:Strange\nones = strange:Strange\nngram = strange:Strange",
    "rollback": "toy-rollback = strange:Strange\neverything = strange:Strange",
    "rules": "strange = nowhere:Rule",
    "targets": "toy = strange:load",
    "commands": "crash = strange:load",
}
STRANGE = """
from spec_core import Compat, hookimpl

class Strange:
    @hookimpl
    def compat(self):
        return Compat(owns={"recurrent", "attention"})

def load(location, **options):
    raise RuntimeError("not for you")
"""
HELD = (
    "tests/core/test_cli_plugins.py::test_every_method_has_its_own_brackets",
    "tests/core/test_cli_plugins.py::test_the_owner_of_recurrent_state_is_named_when_it_comes_by_itself",
    "tests/core/test_cli_plugins.py::test_a_bug_keeps_its_traceback",
    "tests/core/test_cli.py::test_listing_imports_nothing_that_takes_long",
    "tests/compare/test_continue.py::test_a_comparison_killed_at_random_moments_gives_the_same_tables[1]",
    "tests/core/test_cli.py::test_compat_reads_no_weights_and_lists_capabilities",
    "tests/core/test_matching.py::test_recurrent_state_without_an_owner_is_refused_when_drafting",
    "tests/compare/test_compare.py::test_limit_is_per_family",
    "tests/faults/test_installed.py",
    "tests/test_docs.py::test_generated_pages_are_up_to_date",
)
"""Tests that look for plugins by name, or for all that are installed."""


@pytest.mark.release
@pytest.mark.slow
def test_tests_hold_beside_strangers_plugins(tmp_path):
    folder = tmp_path / "strange-1.0.dist-info"
    folder.mkdir()
    (tmp_path / "strange.py").write_text(STRANGE, "utf-8")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n", "utf-8")
    points = "\n".join(f"[spec_core.{group}]\n{lines}\n" for group, lines in POINTS.items())
    points += "[spec_targets.architectures]\nbroken = nowhere:FAMILY\n"
    (folder / "entry_points.txt").write_text(points, "utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *HELD]
    done = subprocess.run(command, cwd=ROOT, env={**kept, "PYTHONPATH": path}, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-3000:]
