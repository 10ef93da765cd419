"""C of the tests belongs to the sources as they are, also on machines that cannot run it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.native.arches import FLAGS, FOLDERS, HERE, TRIALS
from tests.native.compiled import SOURCES
from tests.native.sanitized import ABSENT, NEEDED


@pytest.mark.skipif(shutil.which(HERE.compiler) is None, reason=f"needs {HERE.compiler}")
@pytest.mark.parametrize("name", sorted(file.name for file in TRIALS.glob("*.c")))
def test_trials_compile(name):
    includes = [f"-I{path}" for path in FOLDERS]
    done = subprocess.run(
        [HERE.compiler, *FLAGS, *includes, "-fsyntax-only", TRIALS / name], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("isa", NEEDED)
def test_every_table_of_an_instruction_set_can_be_absent(isa):
    """A build with sanitizers leaves out what the processor cannot run."""
    needed = {f"NO_{source.stem.upper()}" for source in SOURCES.rglob(f"*_{isa}.c")}

    assert needed and needed <= set(ABSENT.read_text("utf-8").split())
