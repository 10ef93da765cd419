"""The extension compiled for the address and undefined-behaviour sanitizers, and programs that run on it.

    python -m tests.native.sanitized LIBRARY models FIRST LAST    random models, the sanitizers preloaded
    python -m tests.native.sanitized LIBRARY heads FIRST LAST     random draft heads
    python -m tests.native.sanitized LIBRARY assistants FIRST LAST

``start`` compiles it where it is not there yet, which takes a minute, and calls such a program.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.native.compiled import FLAGS, ROOT, SOURCES, compile_library, run

SANITIZE = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CALLS = ("--param", "asan-instrumentation-with-call-threshold=0")
"""Checks every access with a call instead of inline code: the same checks, half the time to compile."""
NEEDED = {"avx2": "avx2", "avxvnni": "avx_vnni", "avx512": "avx512f", "avx512vnni": "avx512_vnni"}
"""Processor features that an instruction set needs, by their names in /proc/cpuinfo."""
ABSENT = Path(__file__).with_name("absent.c")
NAME = "spec_kernels.native._native"


def problem() -> str | None:
    """Why there are no sanitizers here, in words."""
    if shutil.which("gcc") is None or not all(map(os.path.isabs, runtimes())):
        return "needs gcc with sanitizers"
    return None


def runtimes() -> list[str]:
    """Paths of gcc's runtime libraries; a name without a folder where one is missing."""
    names = ("libasan.so", "libubsan.so")
    return [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]


def library() -> Path:
    """Files that this processor cannot run are only compiled for warnings."""
    sources, lacked = sorted(SOURCES.rglob("*.c")), lacking()
    for source in lacked:
        run(["gcc", *FLAGS, f"-I{SOURCES}", "-fsyntax-only", source])
    absent = [f"-DNO_{source.stem.upper()}" for source in lacked]
    return compile_library(
        "sanitized", [*SANITIZE, *CALLS, *absent], [ABSENT, *(s for s in sources if s not in lacked)]
    )


def lacking() -> list[Path]:
    """Sources of instruction sets that the processor of this machine lacks."""
    info = Path("/proc/cpuinfo")
    has = set(info.read_text().split()) if info.exists() else set(NEEDED.values())
    return sorted(file for isa, flag in NEEDED.items() if flag not in has for file in SOURCES.rglob(f"*_{isa}.c"))


def start(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in a process in which every test and program uses the library."""
    environment |= {"LD_PRELOAD": " ".join(runtimes()), "ASAN_OPTIONS": "detect_leaks=0"}
    environment |= {"SPEC_NATIVE_LIBRARY": str(library()), "SPEC_NATIVE_FLAGS": " ".join((*SANITIZE, *CALLS))}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )


def random_models(first: int, last: int) -> subprocess.CompletedProcess[str]:
    """Seeds first to last - 1; the exit code is 0 where nothing was found."""
    return _random("models", first, last)


def random_heads(first: int, last: int) -> subprocess.CompletedProcess[str]:
    """Run random draft heads under sanitizers."""
    return _random("heads", first, last)


def random_assistants(first: int, last: int) -> subprocess.CompletedProcess[str]:
    """Run random assistants under sanitizers."""
    return _random("assistants", first, last)


def _random(kind: str, first: int, last: int) -> subprocess.CompletedProcess[str]:
    return start("-m", "tests.native.sanitized", str(library()), kind, str(first), str(last))


def extension(path: str) -> None:
    """Make this the extension that everything in this process uses."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, path)
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules[NAME])

    from spec_kernels import native

    native._native = sys.modules[NAME]


def main() -> int:
    extension(sys.argv[1])
    from tests.native import programs, random_assistants, random_heads

    kinds = {"models": programs.differences, "heads": random_heads.wrong, "assistants": random_assistants.wrong}
    tried = kinds[sys.argv[2]]
    seeds = range(int(sys.argv[3]), int(sys.argv[4]))
    if not seeds:
        sys.exit(f"no seeds between {sys.argv[3]} and {sys.argv[4]}; LAST must be greater than FIRST")
    failures = {seed: wrong for seed in seeds if (wrong := tried(seed))}
    print(failures or "nothing found")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
