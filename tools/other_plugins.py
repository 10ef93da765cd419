"""Writes the page of plugins of other packages: ``python -m tools.other_plugins tools/other-plugins.txt docs``.

Each line of the file is what pip installs, a name of PyPI or a folder. Words after it are what ``spec check`` takes,
for plugins that need more than their name. A package is installed in an environment of its own, on top of this one,
and runs its own code there: run strangers' packages in a container.
"""

from __future__ import annotations

import json
import os
import shlex
import site
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path

import attrs

from spec_core import CONTRACT

INTRODUCTION = """# Plugins of other packages

What the conformance kit found in packages of other authors on {today}, with contract {contract}.
A row is added by a pull request: one line in `tools/other-plugins.txt`.
[Promises](promises.md) lists what the kit checks.
The packages whose name has no link are examples in `tests/out_of_tree`.

| plugin | kind | package | what it does | checks |
| --- | --- | --- | --- | --- |"""
PYPI = "https://pypi.org/project/{}/"
RESULTS = {"kept": "{} kept", "broken": "**{} broken**", "skipped": "{} not applicable"}
"""A result of the kit, and its words on the page."""


@attrs.frozen
class Entry:
    """A line of the file. checks: arguments of ``spec check``, by the name of the plugin."""

    package: str
    checks: dict[str, str]

    @property
    def is_folder(self) -> bool:
        return Path(self.package).is_dir()


@attrs.frozen
class Row:
    """A plugin on the page. version: of its package. result: what the kit found, or why it did not run."""

    name: str
    kind: str
    package: str
    version: str
    summary: str
    result: str
    address: str | None

    def text(self) -> str:
        package = (
            f"[{self.package} {self.version}]({self.address})" if self.address else f"{self.package} {self.version}"
        )
        cells = (f"`{self.name}`", self.kind, package, self.summary, self.result)
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def entries(file: Path) -> list[Entry]:
    """The lines of a file, without empty ones and comments."""
    lines = (shlex.split(line, comments=True) for line in file.read_text("utf-8").splitlines())
    return [Entry(package, {plugin_name(word): word for word in checks}) for package, *checks in filter(None, lines)]


def plugin_name(check: str) -> str:
    """The name of the plugin in an argument of ``spec check``."""
    return check.partition("=")[0].partition(":")[0]


def rows(entry: Entry, folder: Path) -> list[Row]:
    """Install a package in a new environment, and run the kit on its plugins. Raises CalledProcessError."""
    python = environment(folder, entry.package)
    known = {plugin["distribution"] for plugin in json_lines(Path(sys.executable), "plugins", "--json")}
    plugins = json_lines(python, "plugins", "--json")
    return [row(entry, python, plugin) for plugin in plugins if plugin["distribution"] not in known]


def environment(folder: Path, package: str) -> Path:
    """The Python of an environment on top of this one, whose pip it uses, with a package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    added = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "outer.pth").write_text(added, "utf-8")
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
    return python


def json_lines(python: Path, *words: str) -> list[dict[str, str]]:
    """The JSON lines of a command of the program."""
    return list(map(json.loads, program(python, *words).stdout.splitlines()))


def program(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SPEC_", "PYTHON"))}
    command = [str(python), "-m", "spec_core", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def row(entry: Entry, python: Path, plugin: dict[str, str]) -> Row:
    checked = program(python, "check", entry.checks.get(plugin["name"], plugin["name"]), "--json")
    address = None if entry.is_folder else PYPI.format(plugin["distribution"])
    summary = subprocess.run(
        [python, "-c", SUMMARY, plugin["distribution"]], capture_output=True, text=True, check=True
    )
    fields = (plugin["name"], plugin["kind"], plugin["distribution"], plugin["version"], summary.stdout.strip())
    return Row(*fields, result_of(checked), address)


SUMMARY = "import sys; from importlib.metadata import metadata; print(metadata(sys.argv[1])['Summary'] or '')"
"""A program that prints the line that a distribution says of itself."""


def result_of(checked: subprocess.CompletedProcess[str]) -> str:
    """What the kit found, or the line of the error."""
    if checked.returncode not in (0, 1) or not checked.stdout:
        error = checked.stderr.strip().partition("\n")[0].removeprefix("error: ")
        return f"not checked: {error or 'no output'}"
    counts = Counter(json.loads(line)["result"] for line in checked.stdout.splitlines())
    return ", ".join(words.format(counts[result]) for result, words in RESULTS.items() if counts[result])


def page(file: Path, today: date) -> str:
    """The page for the packages of a file."""
    text = [INTRODUCTION.format(today=today, contract="{}.{}".format(*CONTRACT))]
    for entry in entries(file):
        with tempfile.TemporaryDirectory() as folder:
            text += [row.text() for row in rows(entry, Path(folder))]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    (Path(sys.argv[2]) / "other-plugins.md").write_text(page(Path(sys.argv[1]), date.today()), "utf-8")
