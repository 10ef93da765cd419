"""The built wheel works without the repository: package data, entry points, models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from spec_serve.page import KINDS
from spec_zoo import HERE

from tests.support.installed import FOLDERS

pytestmark = pytest.mark.slow


def test_the_wheel_holds_packages_and_models_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info" not in n}

    source = wheel.parent / "source"

    assert tops == {init.parent.name for folder in FOLDERS for init in (source / folder).glob("spec_*/__init__.py")}
    models = {f"spec_zoo/models/{file.name}" for file in (HERE / "models").iterdir()}
    pages = {f"spec_serve/web/{name}" for name in ("page.html", *KINDS)}
    assert {*models, *pages, "spec_zoo/prompts.jsonl", "spec_zoo/prompts-chat.jsonl"} <= set(names)
    assert {"spec_core/__init__.pyi", *(f"{top}/py.typed" for top in tops)} <= set(names)


def test_a_pure_wheel_serves_every_machine(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".so")]


@pytest.mark.release
def test_without_the_native_forward_everything_runs_and_says_so(stranger, tmp_path):
    output = " ".join(stranger.shell("spec env", tmp_path).split())
    assert "no native forward: the extension was not built" in output
    assert "in Python, the same tokens, slower; the native code is not used: the extension was not built" in output
    assert '"tokens"' in stranger.shell("spec generate -m zoo:pico -p 'def f(' -n 2 --json", tmp_path)


@pytest.mark.release
def test_without_a_compiler_the_installation_goes_on(wheel, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(wheel.parent / "source", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    nobody = {**os.environ, "CC": "/nowhere/cc", "SPEC_PURE": "0"}

    subprocess.run([*pip, str(source)], check=True, timeout=300, env=nobody)

    (built,) = tmp_path.glob("*.whl")
    assert not [n for n in zipfile.ZipFile(built).namelist() if n.endswith(".so")]


def test_it_is_imported_from_where_it_was_installed(stranger, tmp_path):
    where = stranger.shell(
        "python -c 'import spec_core, spec_zoo; print(spec_core.__file__, spec_zoo.__file__)'", tmp_path
    )

    assert all(str(stranger.folder) in path for path in where.split())


def test_it_lists_its_plugins_and_generates(stranger, tmp_path):
    assert "draft-model" in stranger.shell("spec plugins", tmp_path)
    out = stranger.shell("spec generate -m zoo:pico -p 'def f(' -n 8 --method draft-model --json", tmp_path)
    assert '"tokens"' in out
