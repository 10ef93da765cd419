"""The C of the kernels as a library for tests of its parts; each source is compiled once.

What is made lies in ``build/native`` under a name that says what it was made from: processes of a run share it, and a
run after which no source changed finds it there. With ``SPEC_NATIVE_LIBRARY`` another library is loaded, one with
sanitizers; what else is compiled then has the flags of ``SPEC_NATIVE_FLAGS``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spec_kernels import native

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "kernels" / "spec_kernels" / "native"
MADE = ROOT / "build" / "native"
FLAGS = ("-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-pthread", "-fPIC", "-Wall", "-Wextra", "-Werror")


def compiler() -> str | None:
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def library() -> Path:
    """The installed extension, which is what users run; compiled here where it is older than its sources."""
    if "SPEC_NATIVE_LIBRARY" in os.environ:
        return Path(os.environ["SPEC_NATIVE_LIBRARY"])
    return installed_extension() or compile_library("plain", ["-O3"], sorted(SOURCES.rglob("*.c")))


def installed_extension() -> Path | None:
    """The extension, unless there is none or a source was changed after it was built."""
    path = native._native and Path(native._native.__file__)
    return path if path and path.stat().st_mtime > max(file.stat().st_mtime for file in texts()) else None


def texts(folder: Path = SOURCES) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in (".c", ".h", ".inc"))


def compile_library(name: str, flags: Sequence[str], sources: Sequence[Path]) -> Path:
    """A shared library of these sources, made unless there is one of the same text, flags and compiler."""
    command = [compiler(), *FLAGS, *flags, f"-I{SOURCES}", f"-I{sysconfig.get_paths()['include']}"]
    named = f"{key(command, {*texts(), *sources})}.so"
    return once(name, named, lambda path: _compile(command, sources, path))


def once(name: str, named: str, make: Callable[[Path], None]) -> Path:
    """The file ``named`` in the folder ``name``: from an earlier run, or written by ``make``; others are deleted."""
    path = MADE / name / named
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for old in path.parent.glob(f"*{path.suffix}"):
                old.unlink()
            make(path)
    return path


def key(command: list[str], read: set[Path]) -> str:
    """A hash of the compiler, its flags and all sources that it may read."""
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    parts = [version, " ".join(command).encode(), *(file.read_bytes() for file in sorted(read))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(command: list[str], sources: Sequence[Path], path: Path) -> None:
    """Two files at a time, the longest first."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, ThreadPoolExecutor(2) as pool:
        ordered = sorted(sources, key=_soon)
        objects = {source: Path(folder, f"{source.parent.name}-{source.stem}.o") for source in ordered}
        list(pool.map(lambda source: run([*command, "-c", source, "-o", objects[source]]), objects))
        run([*command, "-shared", *objects.values(), "-o", Path(folder, "made.so"), "-lm"])
        Path(folder, "made.so").rename(path)


def _soon(source: Path) -> tuple[bool, str]:
    return not source.stem.startswith(("ops_", "product_")), source.stem


def run(command: Sequence[str | Path]) -> None:
    """Raises AssertionError with what the compiler says. A preloaded sanitizer would slow it down, and is left out."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
