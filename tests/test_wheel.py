"""The built wheel works where the repository is not: package data, entry points, models and all."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = [n for n in tracked.stdout.decode().split("\0") if n and (ROOT / n).is_file()]
    if not names:
        pytest.skip("the source is no git checkout; its files cannot be told from what was built")
    for name in names:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(out),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=300)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """Run a command from another folder with the wheel's content in front of everything."""
    site = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)], check=True
    )

    def call(*arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SPEC_")} | {"PYTHONPATH": str(site)}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=site.parent, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return site, call


def test_the_wheel_holds_packages_and_models_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info" not in n}

    assert tops == {"spec_core", "spec_kernels", "spec_methods", "spec_targets", "spec_compare", "spec_zoo"}
    assert {"spec_zoo/models/pico.gguf", "spec_zoo/models/pico-draft.gguf", "spec_zoo/prompts.jsonl"} <= set(names)


def test_it_is_imported_from_where_it_was_installed(elsewhere):
    site, call = elsewhere
    assert str(site) in call("-c", "import spec_core, spec_zoo; print(spec_core.__file__)")


def test_it_lists_its_plugins_and_generates(elsewhere):
    _, call = elsewhere

    assert "draft-model" in call("-m", "spec_core.cli", "plugins")
    out = call(
        "-m",
        "spec_core.cli",
        "generate",
        "-m",
        "zoo:pico",
        "-p",
        "def f(",
        "-n",
        "8",
        "--method",
        "draft-model",
        "--json",
    )
    assert '"tokens"' in out
