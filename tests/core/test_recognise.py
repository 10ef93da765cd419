"""A path without a scheme: targets recognise their own files; the core names none of them."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from spec_core import UsageError
from spec_core.assembly import recognise as module


def small(path):
    return path.suffix == ".small"


def has_dot(path):
    return "." in path.name


def fail(path):
    raise ValueError("out of order")


@pytest.fixture
def install(monkeypatch):
    """Make these functions of this file the installed ones."""

    def choose(*names):
        points = [metadata.EntryPoint(name, f"{__name__}:{name}", module.RECOGNISE) for name in names]
        monkeypatch.setattr(metadata, "entry_points", lambda: metadata.EntryPoints(points))

    return choose


def test_the_target_that_recognises_a_path_gets_it(install, tmp_path):
    install("small", "fail")

    assert module.recognise_scheme(tmp_path / "a.small") == "small"


def test_a_path_of_several_targets_is_refused(install, tmp_path):
    install("small", "has_dot")

    with pytest.raises(UsageError, match="several targets: has_dot, small"):
        module.recognise_scheme(tmp_path / "a.small")


def test_a_path_of_nobody_is_refused_and_who_failed_is_named(install, tmp_path):
    install("small", "fail")

    with pytest.raises(UsageError, match=r"asked: fail, small; fail failed \(ValueError: out of order\)"):
        module.recognise_scheme(tmp_path / "a.large")


def test_nothing_heavy_is_imported_to_recognise():
    code = "import sys, spec_targets.recognise; print([m for m in ('torch', 'numpy', 'gguf') if m in sys.modules])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
