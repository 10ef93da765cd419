"""The wheel for Linux on aarch64: cross-compiled, and run by an emulator.

Debian has the compiler and the emulator (``apt-get install gcc-aarch64-linux-gnu qemu-user``), and a Python for
aarch64, which is unpacked in a folder: nothing is installed on this machine.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.steps import ReleaseError, run

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
PLATFORM = "linux_aarch64"
SETTINGS = {"CC": COMPILER, "LDSHARED": f"{COMPILER} -shared", "_PYTHON_HOST_PLATFORM": PLATFORM.replace("_", "-")}
"""What setuptools reads to build for another machine."""
PYTHON = "3.11"
PACKAGES = (f"python{PYTHON}", "libgomp1", "libstdc++6")
"""Debian's packages that a Python with torch needs."""
TORCH = "torch==2.8.0"
"""The newest on PyPI whose wheel for aarch64 does not need CUDA's libraries, which take gigabytes."""
APT = """\
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Debug::NoLocking "true";
"""
"""Settings of an apt that reads this machine's sources for another architecture, and writes to a folder alone."""


def check_tools() -> None:
    """Raise ReleaseError if a program is missing."""
    programs = (COMPILER, EMULATOR, "apt-get", "dpkg-deb")
    if missing := [program for program in programs if shutil.which(program) is None]:
        hint = "on Debian, apt-get install gcc-aarch64-linux-gnu qemu-user; or leave this wheel out with ARM=0"
        raise ReleaseError(f"the wheel for aarch64 needs {', '.join(missing)}: {hint}")


def unpack_python(folder: Path) -> Path:
    """Root of a file system with Debian's Python for aarch64."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    settings: dict[str, str | Path] = {"APT_CONFIG": folder / "apt.conf"}
    (folder / "apt.conf").write_text(APT.format(folder=folder), "utf-8")
    apt = ("apt-get", "-qq", "-o", "APT::Sandbox::User=")
    run((*apt, "update"), folder, settings=settings)
    run((*apt, "install", "--yes", "--download-only", "--no-install-recommends", *PACKAGES), folder, settings=settings)
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        run(("dpkg-deb", "-x", package, folder / "root"), folder, quiet=True)
    return folder / "root"


def outputs(uv: Path, wheel: Path, folder: Path, commands: tuple[tuple[str, ...], ...]) -> list[str]:
    """What commands of the program print on an emulated aarch64, with the wheel and torch.

    uv: the program, which installs packages for another machine.
    """
    root, site = unpack_python(folder), folder / "site"
    install = (uv, "pip", "install", "-q", "--python-platform", "aarch64-manylinux_2_34", "--python-version", PYTHON)
    run((*install, "--only-binary", ":all:", "--target", site, TORCH, wheel), folder)
    python = (EMULATOR, "-L", root, root / "usr" / "bin" / f"python{PYTHON}")
    settings: dict[str, str | Path] = {"PYTHONPATH": site, "OMP_NUM_THREADS": "1"}
    return [run((*python, "-m", "spec_core", *words), folder, settings=settings) for words in commands]
