"""A release in one command: ``make release`` builds, checks in a clean environment, and tags.

1. Refuse a tree with changes, a version without a section in CHANGELOG.md, and changelog fragments that are left.
2. Build the sdist, and the wheel of this platform from the sdist, in ``dist/``.
3. Install the wheel in a new environment, run a few commands of the program and a few tests.
4. Tag the commit. ``--no-tag`` leaves this out.

Nothing is pushed or uploaded.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NATIVE = ("spec_kernels/native/_native", "spec_core/sampling/native/_choice")
"""Compiled extensions that a wheel of a platform must contain."""
COMMANDS = (
    ("env",),
    ("plugins",),
    ("generate", "-m", "zoo:pico", "-p", "def area(", "-n", "8", "--method", "ngram", "--threads", "1"),
)
TESTS = ("tests/core/test_values.py", "tests/core/test_lossless.py", "tests/methods/test_ngram.py")
"""Tests that are run with the installed wheel."""
KEPT_FRAGMENTS = {"README.md"}


class ReleaseError(Exception):
    """The reason why nothing was released, and what to do."""


def version_of(root: Path) -> str:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def check_ready(root: Path, version: str, tag: bool) -> None:
    """Raise ReleaseError for a tree that cannot be released."""
    if changes := git(root, "status", "--porcelain"):
        raise ReleaseError(f"the working tree has changes:\n{changes}\ncommit or remove them first")
    if not re.search(rf"^## {re.escape(version)}\b", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section {version}: run `towncrier build --version {version}`")
    if left := sorted(path.name for path in (root / "changelog.d").iterdir() if path.name not in KEPT_FRAGMENTS):
        raise ReleaseError(f"changelog.d has fragments: {', '.join(left)}; run `towncrier build --version {version}`")
    if tag and git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists: raise the version in pyproject.toml")


def git(root: Path, *arguments: str) -> str:
    return run(("git", *arguments), root, quiet=True).rstrip()


def run(command: Sequence[str | Path], folder: Path, quiet: bool = False) -> str:
    """Standard output of a command. Raises ReleaseError if it fails."""
    words = [str(word) for word in command]
    if not quiet:
        print("$", " ".join(words), flush=True)
    # Settings of the caller's environment must not reach the checks.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPEC_", "PYTHON", "PYTEST_"))}
    done = subprocess.run(words, cwd=folder, env=kept, stdout=subprocess.PIPE, text=True, check=False)
    if not quiet:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} failed with exit status {done.returncode}")
    return done.stdout


def environment(folder: Path) -> Path:
    """The Python of a new virtual environment."""
    shutil.rmtree(folder, ignore_errors=True)
    run((sys.executable, "-m", "venv", folder), folder.parent)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run((python, "-m", "pip", "install", "-q", "--upgrade", "pip"), folder)
    return python


def build(root: Path, work: Path, version: str) -> Path:
    """Build what is committed; returns the path of the wheel."""
    source, dist = work / "source", root / "dist"
    for folder in (source, dist):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    archive = work / "source.tar"
    git(root, "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    python = environment(work / "tools")
    run((python, "-m", "pip", "install", "-q", "build"), work)
    run((python, "-m", "build", "--outdir", dist, source), work)
    (wheel,) = dist.glob(f"spec_core-{version}-*.whl")
    return wheel


def check_wheel(wheel: Path) -> None:
    """Raise ReleaseError for a wheel without the compiled extensions, which setup.py treats as optional."""
    names = zipfile.ZipFile(wheel).namelist()
    if missing := [module for module in NATIVE if not any(name.startswith(module + ".") for name in names)]:
        raise ReleaseError(f"{wheel.name} has no {', '.join(missing)}: install a C compiler and its headers")


def check_installed(root: Path, work: Path, wheel: Path) -> None:
    """Commands and tests in a new environment, in a folder without the packages' source."""
    python = environment(work / "clean")
    constraints = ("-c", root / "constraints.txt")
    pip = (python, "-m", "pip", "install", "-q")
    run((*pip, *constraints, "torch"), work)  # first, so that nothing that depends on it chooses another version
    run((*pip, *constraints, wheel, "pytest", "hypothesis"), work)
    for words in COMMANDS:
        run((python.with_name("spec"), *words), work)
    folder = work / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)
    run((python, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow and not compiles", *TESTS), folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tag", dest="tag", action="store_false", help="build and check only")
    tag, version = parser.parse_args().tag, version_of(ROOT)
    work = ROOT / "build" / "release"
    work.mkdir(parents=True, exist_ok=True)
    try:
        check_ready(ROOT, version, tag)
        wheel = build(ROOT, work, version)
        check_wheel(wheel)
        check_installed(ROOT, work, wheel)
        if tag:
            run(("git", "tag", "--annotate", f"v{version}", "--message", f"spec-core {version}"), ROOT)
    except ReleaseError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"spec-core {version}: {', '.join(sorted(path.name for path in wheel.parent.iterdir()))} in dist/")
    print(f"tagged v{version}; push it with `git push origin v{version}`" if tag else "no tag")
    return 0


if __name__ == "__main__":
    sys.exit(main())
