"""The operators' tests and random models once more, compiled for the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.sanitized import run, runtimes

TESTS = [Path(__file__).with_name(f"test_ops_{part}.py") for part in ("rows", "attention", "delta", "experts")]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("gcc") is None or not all(os.path.isabs(path) for path in runtimes()),
        reason="no gcc with sanitizers",
    ),
]


def test_no_sanitizer_complains():
    environment = os.environ | {
        "SPEC_SANITIZE": "1",
        "LD_PRELOAD": " ".join(runtimes()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "CC": "gcc",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, TESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_no_sanitizer_complains_about_random_models(tmp_path):
    done = run(tmp_path, 0, 8)

    assert (done.returncode, done.stdout) == (0, "nothing found\n"), done.stdout[-3000:] + done.stderr[-3000:]
