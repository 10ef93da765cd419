"""``spec new``: what it writes is a package that passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from spec_cli.main import run_command
from spec_cli.new import KINDS

from spec_core.assembly.discovery import GROUPS
from tests.support.pages import check_understood


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [["-k", "survived"], pytest.param([], marks=pytest.mark.release)], ids=["one", "all"]
)
def test_new_packages_pass_their_own_tests(tmp_path, chosen):
    """One of each kind, all in one process; their entry points name what is in their modules."""
    named = [name_of(kind, tmp_path) for kind in KINDS]
    folders = sorted(path.name for path in tmp_path.iterdir())
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(tmp_path), "-v", *chosen, *folders]
    loads = [f"from {module} import {name}" for module, name in named]
    check = "\n".join(["import sys, pytest", *loads, f"sys.exit(pytest.main({options}))"])
    path = os.pathsep.join(folders)
    done = subprocess.run(
        [sys.executable, "-c", check],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert [folder for folder in folders if f"{folder}/" not in done.stdout] == []


def name_of(kind: str, into: Path) -> tuple[str, str]:
    """(module, name) of the entry point of a new package."""
    assert run_command(["new", kind, f"my-{kind}", "--into", str(into)]) == 0
    project = tomllib.loads((into / f"spec-my-{kind}" / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"][GROUPS[kind]][f"my-{kind}"].partition(":")
    return module, name


@pytest.mark.parametrize("name", ["My", "a_b", "../up", "", "1st", "ngram"])
def test_a_name_that_cannot_be_is_refused(name, tmp_path, capsys):
    assert run_command(["new", "method", name, "--into", str(tmp_path)]) == 2

    assert "error: " in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "spec-my-own").mkdir()

    assert run_command(["new", "rule", "my-own", "--into", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_its_workflow_runs_the_kit_on_two_systems_before_it_publishes(tmp_path, kind):
    """With an identity in place of a token, for tags alone."""
    yaml = pytest.importorskip("yaml")
    assert run_command(["new", kind, "my-own", "--into", str(tmp_path)]) == 0
    text = (tmp_path / "spec-my-own" / ".github" / "workflows" / "test.yml").read_text("utf-8")
    kit, publish = (yaml.safe_load(text)["jobs"][name] for name in ("kit", "publish"))

    assert kit["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    assert kit["runs-on"] == "${{ matrix.os }}"
    assert {"run": "pytest -q"} in kit["steps"]
    assert (publish["needs"], publish["permissions"]["id-token"]) == ("kit", "write")
    assert "refs/tags/" in publish["if"] and "password" not in text


def test_its_readme_shows_the_badge_that_its_command_writes(tmp_path, capsys):
    """The command is one that the program understands; no name is left open."""
    for kind in KINDS:
        assert run_command(["new", kind, "my-own", "--into", str(tmp_path / kind)]) == 0
        text = (tmp_path / kind / "spec-my-own" / "README.md").read_text("utf-8")
        [command] = [line for line in text.splitlines() if line.startswith("spec check ")]
        check_understood(command.split()[1:])

        assert f"]({command.split()[-1]})" in text and "{{" not in text


def test_the_text_of_a_project_is_its_readme(tmp_path):
    assert run_command(["new", "method", "my-own", "--into", str(tmp_path)]) == 0
    project = tomllib.loads((tmp_path / "spec-my-own" / "pyproject.toml").read_text("utf-8"))["project"]

    assert (tmp_path / "spec-my-own" / project["readme"]).read_text("utf-8").startswith("# spec-my-own\n")
