"""The tests of the operators once more, compiled for the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = [Path(__file__).with_name(f"test_ops_{part}.py") for part in ("rows", "attention", "delta", "experts")]


def sanitizers() -> list[str]:
    """Paths of gcc's runtime libraries; a name without a folder where one is missing."""
    names = ("libasan.so", "libubsan.so")
    return [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]


@pytest.mark.slow
def test_no_sanitizer_complains():
    if shutil.which("gcc") is None or not all(os.path.isabs(path) for path in sanitizers()):
        pytest.skip("no gcc with sanitizers")
    environment = os.environ | {
        "SPEC_SANITIZE": "1",
        "LD_PRELOAD": " ".join(sanitizers()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "CC": "gcc",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, TESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
