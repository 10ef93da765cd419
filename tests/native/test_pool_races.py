"""The thread pool under gcc's thread sanitiser, and across a fork."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.compiled import SOURCES

PROGRAM = Path(__file__).with_name("pool_races.c")


def build(folder: Path, *flags: str) -> Path:
    command = ["gcc", "-std=gnu11", "-g", "-pthread", *flags, f"-I{SOURCES}", "-o", folder / "races"]
    done = subprocess.run([*command, PROGRAM, SOURCES / "program" / "thread_pool.c"], capture_output=True, text=True)
    if done.returncode and "tsan" in done.stderr:
        pytest.skip("no thread sanitiser")
    assert done.returncode == 0, done.stderr
    return folder / "races"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize("flags, arguments", [(["-O1", "-fsanitize=thread"], []), (["-O2"], ["fork"])])
def test_every_job_is_done_once_and_nothing_races(flags, arguments, tmp_path):
    done = subprocess.run([build(tmp_path, *flags), *arguments], capture_output=True, text=True, timeout=120)

    assert "data race" not in done.stderr, done.stderr[:3000]
    assert (done.returncode, done.stdout) == (0, "0 wrong, child 0\n"), done.stderr[:3000]
