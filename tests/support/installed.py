"""The built wheel, and environments with it installed, without the repository."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FOLDERS: list[str] = PROJECT["tool"]["setuptools"]["packages"]["find"]["where"]
"""Folders of packages, relative to the project."""
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_COMPILE": "0",
}
"""Nothing is downloaded: dependencies come from the environment of the tests. Python compiles what it imports."""
BARE = {"PYTEST_ADDOPTS": "-p no:xdist -p no:hypothesispytest -p no:cacheprovider"}
"""Of the borrowed programs only pytest is on the path."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel from what git tracks, once for all processes of a test run that share ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built := list(folder.glob("*.whl"))):
            copy_source(folder / "source")
            pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
            # Without the native forward: a compiler needs minutes for it, and a stranger may have none.
            pure = {**os.environ, "SPEC_PURE": "1"}
            subprocess.run([*pip, "-w", str(folder), str(folder / "source")], check=True, timeout=300, env=pure)
            built = list(folder.glob("*.whl"))
    return built[0]


def copy_source(folder: Path) -> None:
    """The tracked files, as they are now; nothing that an earlier build left behind."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = [n for n in tracked.stdout.decode().split("\0") if n and (ROOT / n).is_file()]
    if not names:
        pytest.skip("the source is not a git checkout; its files cannot be distinguished from what was built")
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())


@attrs.frozen
class Environment:
    """A virtual environment with its own packages; their dependencies come from the tests' environment."""

    folder: Path

    def shell(self, script: str, cwd: Path) -> str:
        """Run lines of a shell as a user of this environment; returns standard output. The first failure ends it."""
        return self._run(["bash", "-ec", script], cwd)

    def python(self, source: str, cwd: Path) -> str:
        """Run a script; returns standard output."""
        return self._run([str(self.folder / "bin" / "python"), "-c", source], cwd)

    def _run(self, command: list[str], cwd: Path) -> str:
        done = subprocess.run(command, cwd=cwd, env=self._variables(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPEC_", "PYTEST_", "PYTHON", "PIP_"))}
        path = os.pathsep.join([str(self.folder / "bin"), kept.get("PATH", "")])
        return {**kept, **OFFLINE, **BARE, "PATH": path, "VIRTUAL_ENV": str(self.folder), "OMP_NUM_THREADS": "1"}


def environment(folder: Path, *packages: Path) -> Environment:
    """A fresh environment in which these wheels or folders are installed by pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "borrowed.pth").write_text("\n".join(p for p in sys.path if Path(p).name == "site-packages") + "\n")
    for name, module in (("pip", "pip"), ("pytest", "pytest")):
        script = folder / "bin" / name
        script.write_text(f"#!{folder}/bin/python\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')\n")
        script.chmod(0o755)
    environment = Environment(folder)
    environment.shell("pip install -q " + " ".join(f"'{p}'" for p in packages), folder)
    return environment
