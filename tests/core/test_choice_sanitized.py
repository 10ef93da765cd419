"""The native choice once more, compiled for the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.native.compiled import key, once, texts

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "spec_core" / "sampling" / "native"
FLAGS = ["-shared", "-fPIC", "-std=gnu11", "-g", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pthread"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SCRIPT = """
import importlib.util, sys
from spec_core.sampling import native
found = importlib.util.spec_from_file_location("spec_core.sampling.native._choice", sys.argv[1])
native.module = importlib.util.module_from_spec(found)
from tests.support import choices
for isa in native.module.instruction_sets():
    assert not choices.differing(isa, 7, 600) and not choices.differing(isa, 8, 4, (49_152,))
    native.module.use(isa)
    choices.everything(150)
"""


def runtime(name: str) -> str:
    """Path of one of gcc's runtime libraries; a name without a folder where it is missing."""
    return subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()


@pytest.mark.release
@pytest.mark.slow
def test_no_sanitizer_complains_about_a_choice():
    if shutil.which("gcc") is None or not all(os.path.isabs(runtime(f"lib{name}.so")) for name in ("asan", "ubsan")):
        pytest.skip("no gcc with sanitizers")
    sources = sorted(map(str, SOURCES.glob("*.c")))
    command = ["gcc", *FLAGS, *SANITIZE, f"-I{sysconfig.get_paths()['include']}", *sources, "-lm"]
    compile_to = lambda path: subprocess.run([*command, "-o", path], check=True)
    built = once("choice_sanitized", f"{key(command, set(texts(SOURCES)))}.so", compile_to)
    environment = os.environ | {
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(built)], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-3000:]
