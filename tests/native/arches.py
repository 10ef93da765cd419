"""The native code on another architecture: the trials of ``arches/``, cross-compiled and run by an emulator.

A trial is a product, an operator, a choice or the whole forward of a random model; it prints a hash of what came out.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from tests.native.compiled import key, once, texts

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "kernels" / "spec_kernels" / "native", ROOT / "spec_core" / "sampling" / "native")
TRIALS = Path(__file__).with_name("arches")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
FLAGS = ("-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-pthread", *WARNINGS)


@attrs.frozen
class Machine:
    """A compiler, and the emulator for its programs."""

    compiler: str
    flags: tuple[str, ...]
    runner: tuple[str, ...] = ()

    def problem(self) -> str | None:
        """The missing tools, in words."""
        missing = [name for name in (self.compiler, *self.runner[:1]) if shutil.which(name) is None]
        return f"needs {' and '.join(missing)}" if missing else None

    def build(self) -> Path:
        """The native code, but for the parts that are Python's, and the trials: compiled once, as compiled.py says."""
        read = {Path(__file__), *(text for folder in (*FOLDERS, TRIALS) for text in texts(folder))}
        named = key([self.compiler, *FLAGS, *self.flags], read)
        return once(self.compiler, f"{named}.trials", self._build)

    def _build(self, path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder, ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(lambda source: self._compile(source, Path(folder)), sources()))
            program = Path(folder) / "trials"
            static = ["-static"] if self.runner else []
            subprocess.run([self.compiler, "-pthread", *static, "-o", program, *objects, "-lm"], check=True)
            program.rename(path)

    def _compile(self, source: Path, folder: Path) -> Path:
        object_file = folder / f"{source.parent.name}-{source.stem}.o"
        flags = self.flags if any(source.is_relative_to(folder) for folder in FOLDERS) else ("-O1",)
        includes = [f"-I{path}" for path in FOLDERS]
        command = [self.compiler, *FLAGS, *flags, *includes, "-c", source, "-o", object_file]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return object_file

    def run(self, program: Path, seeds: int, *cpu: str) -> Outcome:
        done = subprocess.run([*self.runner, *cpu, program, str(seeds)], capture_output=True, text=True)
        return Outcome(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())


@attrs.frozen
class Outcome:
    """hashes: a line for every trial. said: the instruction sets of each part, and the differing ones."""

    code: int
    hashes: list[str]
    said: list[str]


def sources() -> Iterator[Path]:
    """The largest first, so that two compilers finish at about the same time."""
    sources = [path for folder in FOLDERS for path in folder.rglob("*.c") if "Python.h" not in path.read_text()]
    yield from sorted(sources, key=lambda path: (not path.stem.startswith(("ops_", "product_")), path))
    yield from sorted(TRIALS.glob("*.c"))


HERE = Machine("gcc", ("-O1", "-DSPEC_PORTABLE"))
"""This machine's results; other tests compare other instruction sets with plain C."""
ARM = Machine("aarch64-linux-gnu-gcc", ("-O3",), ("qemu-aarch64",))
"""Compiled as for users, except for -fno-trapping-math of the choice."""
