"""The trials of ``arches/`` belong to the sources as they are, also where no emulator runs them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.native.arches import FLAGS, FOLDERS, HERE, TRIALS


@pytest.mark.skipif(shutil.which(HERE.compiler) is None, reason=f"needs {HERE.compiler}")
@pytest.mark.parametrize("name", sorted(file.name for file in TRIALS.glob("*.c")))
def test_trials_compile(name):
    includes = [f"-I{path}" for path in FOLDERS]
    done = subprocess.run(
        [HERE.compiler, *FLAGS, *includes, "-fsyntax-only", TRIALS / name], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr[-3000:]
