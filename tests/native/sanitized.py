"""The random models of programs.py on an extension compiled for the address and undefined-behaviour sanitizers.

    python -m tests.native.sanitized LIBRARY FIRST LAST    with the sanitizers' libraries preloaded

``run`` compiles it where it is not there yet, which takes a minute, and calls this.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "kernels" / "spec_kernels" / "native"
FLAGS = ["-std=gnu11", "-O1", "-g", "-ffp-contract=off", "-fno-math-errno", "-pthread", "-fPIC", "-shared"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
NAME = "spec_kernels.native._native"


def runtimes() -> list[str]:
    """Paths of gcc's runtime libraries; a name without a folder where one is missing."""
    names = ("libasan.so", "libubsan.so")
    return [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]


def built(folder: Path) -> Path:
    """The extension, compiled unless it is as new as its sources."""
    library, sources = folder / "_native.abi3.so", sorted(SOURCES.glob("*.c"))
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir() if path.suffix in (".c", ".h", ".inc"))
    if not library.exists() or library.stat().st_mtime < newest:
        folder.mkdir(parents=True, exist_ok=True)
        include = f"-I{sysconfig.get_paths()['include']}"
        subprocess.run(["gcc", *FLAGS, *SANITIZE, include, *sources, "-o", library], check=True)
    return library


def run(folder: Path, first: int, last: int) -> subprocess.CompletedProcess[str]:
    """Seeds first to last - 1 in a process of their own; its exit code is 0 where nothing was found."""
    environment = os.environ | {"LD_PRELOAD": " ".join(runtimes()), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-m", "tests.native.sanitized", str(built(folder)), str(first), str(last)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def extension(library: str) -> None:
    """Make this the extension that everything in this process uses."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, library)
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules[NAME])

    from spec_kernels import native

    native._native = sys.modules[NAME]


def main() -> int:
    extension(sys.argv[1])
    from tests.native.programs import differences

    found = {seed: wrong for seed in range(int(sys.argv[2]), int(sys.argv[3])) if (wrong := differences(seed))}
    print(found or "nothing found")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
