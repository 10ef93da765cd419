"""``spec new``: what it writes is a package that passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
from spec_cli.main import run
from spec_cli.new import KINDS

from spec_core.assembly.discovery import GROUPS


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_passes_its_own_tests(kind, tmp_path):
    """Its entry point names what is in its module."""
    assert run(["new", kind, "my-own", "--into", str(tmp_path)]) == 0

    folder = tmp_path / "spec-my-own"
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"][GROUPS[kind]]["my-own"].partition(":")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder)]
    check = f"import sys, pytest, {module} as m; m.{name}; sys.exit(pytest.main({options}))"
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["My", "a_b", "../up", "", "1st", "ngram"])
def test_a_name_that_cannot_be_is_refused(name, tmp_path, capsys):
    assert run(["new", "method", name, "--into", str(tmp_path)]) == 2

    assert "error: " in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "spec-my-own").mkdir()

    assert run(["new", "rule", "my-own", "--into", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
