"""Planted faults: each of one list of mistakes in the product is found by the tests that the list names for it.

``python tests/campaigns/planted_faults.py --out faults.txt`` copies the tree, plants the faults of planted_faults.toml
one after another, runs the tests of each, and writes a line for each: the test that found it, or UNFOUND. Faults in C
are built together, once, and one environment variable chooses among them. Exit code 1 if a fault is unfound.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".toml")
CHOICE = "SPEC_PLANTED_FAULT"
"""The environment variable with the number of the fault in C that is active."""
HEADER = f"""#ifndef PLANTED_H
#define PLANTED_H
#include <stdlib.h>
static int planted_choice = -1;
static inline int planted(int number) {{
    if (planted_choice < 0) planted_choice = getenv("{CHOICE}") ? atoi(getenv("{CHOICE}")) : 0;
    return planted_choice == number;
}}
#endif
"""
FOLDERS = (".", "kernels", "plugins/decoding", "plugins/models", "plugins/commands")
"""Folders of packages."""


@attrs.frozen
class Fault:
    """A mistake: ``old`` stands once in ``file`` and becomes ``new``. tests: arguments of pytest. number: from 1."""

    number: int
    file: str
    old: str
    new: str
    tests: str

    @property
    def native(self) -> bool:
        """Whether it is in C."""
        return self.file.endswith((".c", ".inc"))

    def plant(self, text: str) -> str:
        """The text of the file with the fault. Raises ValueError where the old text does not stand there once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times {self.old!r}; 1 is needed")
        return text.replace(self.old, self.in_c() if self.native else self.new)

    def in_c(self) -> str:
        """Both texts in C, one of which runs."""
        if self.old.endswith(";"):
            return f"{{ if (planted({self.number})) {{ {self.new} }} else {{ {self.old} }} }}"
        return f"(planted({self.number}) ? ({self.new}) : ({self.old}))"


def read_faults() -> list[Fault]:
    """The list."""
    entries = tomllib.loads(LIST.read_text("utf-8"))["fault"]
    return [Fault(number, **entry) for number, entry in enumerate(entries, 1)]


def copy_tree(to: Path, planted: set[str]) -> None:
    """Copy all files that git knows or would add, and built extensions that are missing. planted: files left out."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    built = [str(path.relative_to(ROOT)) for folder in FOLDERS[1:] for path in (ROOT / folder).rglob("*.so")]
    built += [str(path.relative_to(ROOT)) for path in (ROOT / "spec_core").rglob("*.so")]
    names += [name for name in built if not (to / name).exists()]
    for name in {name for name in names if name and name not in planted and (ROOT / name).is_file()}:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)


def plant_native(tree: Path, faults: list[Fault]) -> None:
    """Plant all faults in C; a variable chooses one. Extensions are built where a file differs from the last time."""
    header = tree / "planted.h"
    write(header, HEADER)
    for file in sorted({fault.file for fault in faults}):
        text = (ROOT / file).read_text("utf-8")
        for fault in faults:
            text = fault.plant(text) if fault.file == file else text
        write(tree / file, f'#include "{header}"\n{text}')
    subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace", "-q"], cwd=tree, check=True)


def write(path: Path, text: str) -> None:
    """Write a text unless the file has it, so that its time stays."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def environment(tree: Path, number: int) -> dict[str, str]:
    """The variables of a test run on the tree. number: of the active fault in C, 0 for none."""
    paths = os.pathsep.join(str(tree / folder) for folder in FOLDERS)
    return os.environ | {"PYTHONPATH": paths, CHOICE: str(number), "PYTHONDONTWRITEBYTECODE": "1"}


def run_tests(tree: Path, tests: str, number: int) -> str:
    """The first test that failed, or an empty text. Raises RuntimeError where pytest ran no test."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE", *shlex.split(tests)]
    done = subprocess.run(command, cwd=tree, env=environment(tree, number), capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M):
        return failed[1]
    if done.returncode < 0:
        return f"a process that ended with signal {-done.returncode}"
    raise RuntimeError(f"pytest {tests} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def find(tree: Path, fault: Fault) -> str:
    """The first test that fails with a fault."""
    if fault.native:
        return run_tests(tree, fault.tests, fault.number)
    path = tree / fault.file
    plain = path.read_text("utf-8")
    path.write_text(fault.plant(plain), "utf-8")
    try:
        return run_tests(tree, fault.tests, 0)
    finally:
        path.write_text(plain, "utf-8")


def play(tree: Path, faults: list[Fault]) -> Iterator[tuple[Fault, str, float]]:
    """(fault, the test that found it, seconds) of each."""
    for fault in faults:
        begin = time.monotonic()
        yield fault, find(tree, fault), time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults in files whose path contains this, or numbers")
    parser.add_argument("--out", type=Path, default=None, help="file that gets the lines")
    parser.add_argument("--tree", type=Path, default=None, help="folder of the copy, which stays; default: a new one")
    options = parser.parse_args()
    faults = read_faults()
    numbers = options.only.replace(",", " ").split()
    by_number = bool(numbers) and all(map(str.isdecimal, numbers))
    chosen = [f for f in faults if (str(f.number) in numbers if by_number else options.only in f.file)]
    tree = options.tree or Path(tempfile.mkdtemp(prefix="planted-faults-"))
    lines = []
    try:
        native = [fault for fault in faults if fault.native] if any(fault.native for fault in chosen) else []
        copy_tree(tree, {fault.file for fault in native})
        if native:
            plant_native(tree, native)
        for fault, test, seconds in play(tree, chosen):
            lines.append(
                f"{fault.number:2} {fault.file}: {fault.new or 'nothing'} | {test or 'UNFOUND'} | {seconds:.0f} s"
            )
            print(lines[-1], flush=True)
            if options.out:
                options.out.write_text("\n".join(lines) + "\n")
    finally:
        if options.tree is None:
            shutil.rmtree(tree, ignore_errors=True)
    unfound = sum("| UNFOUND |" in line for line in lines)
    print(f"{len(lines) - unfound} of {len(lines)} faults found")
    return 1 if unfound else 0


if __name__ == "__main__":
    sys.exit(main())
