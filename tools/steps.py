"""Commands of a release, each printed before it runs and stopped at its first failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HIDDEN = ("SPEC_", "PYTHON", "PYTEST_")
"""Beginnings of the names of variables that a command does not see: the caller's settings would change its checks."""


class ReleaseError(Exception):
    """The reason why nothing was released, and what to do."""


def run(
    command: Sequence[str | Path], folder: Path, quiet: bool = False, settings: Mapping[str, str | Path] | None = None
) -> str:
    """Standard output of a command. Raises ReleaseError if it fails.

    settings: more variables of its environment.
    """
    words = [str(word) for word in command]
    if not quiet:
        print("$", " ".join(words), flush=True)
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPEC_", "PYTHON", "PYTEST_"))
    }
    variables |= {name: str(value) for name, value in (settings or {}).items()}
    try:
        done = subprocess.run(words, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise ReleaseError(f"{words[0]} is not installed") from None
    if not quiet:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} failed with exit status {done.returncode}")
    return done.stdout


def git(root: Path, *arguments: str) -> str:
    return run(("git", *arguments), root, quiet=True).rstrip()


def environment(folder: Path, *packages: str) -> Path:
    """The Python of a new virtual environment with some packages."""
    shutil.rmtree(folder, ignore_errors=True)
    run((sys.executable, "-m", "venv", folder), folder.parent)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run((python, "-m", "pip", "install", "-q", "--upgrade", "pip", *packages), folder)
    return python
