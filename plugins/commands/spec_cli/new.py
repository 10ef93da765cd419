"""``spec new KIND NAME``: a package to start a plugin from, with tests, and a workflow that runs and publishes it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import attrs
import click
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_core.commands import GROUPS, discover_plugins
from spec_core.errors import UsageError, error_message

ENDS = {"target": ":load"}
"""The object that an entry point names, for kinds where it is not the plugin's class."""
KINDS = ("method", "rule", "target", "rollback", "control")
PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "spec-{name}"
version = "0.1.0"
readme = "README.md"
dependencies = ["spec-core>=0.1"]

[project.entry-points."{group}"]
{name} = "{module}{end}"

[tool.setuptools]
py-modules = ["{module}"]
"""


@attrs.frozen
class Names:
    """Names used in the package of a plugin."""

    kind: str
    name: str

    @property
    def module(self) -> str:
        return "spec_" + self.name.replace("-", "_")

    @property
    def cls(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("-"))

    def project(self) -> str:
        end = ENDS.get(self.kind, f":{self.cls}")
        return PROJECT.format(name=self.name, group=GROUPS[self.kind], module=self.module, end=end)

    def fill(self, template: str) -> str:
        text = (resources.files("spec_cli") / "templates" / f"{template}.txt").read_text("utf-8")
        words = {"Class": self.cls, "module": self.module, "name": self.name, "kind": self.kind}
        words["checked"] = self.checked
        for word, value in words.items():
            text = text.replace("{{" + word + "}}", value)
        return text

    @property
    def checked(self) -> str:
        """The plugin as ``spec check`` takes it."""
        return f"{self.name}:LOCATION" if self.kind == "target" else self.name

    def files(self) -> dict[str, str]:
        """{path in the package's folder: text}."""
        return {
            "pyproject.toml": self.project(),
            "README.md": self.fill("readme"),
            f"{self.module}.py": self.fill(self.kind),
            f"test_{self.module}.py": self.fill(f"{self.kind}_test"),
            ".github/workflows/test.yml": self.fill("workflow"),
        }


@click.command(cls=Command)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), default=Path(), help="Parent of the new folder.")
def new(kind: str, name: str, into: Path) -> None:
    """Write a plugin package with passing tests, as in the pages "Write a ..."."""
    check_name(name)
    names = Names(kind, name)
    folder = into / f"spec-{name}"
    write_package(folder, names)
    print_line(f"{folder}: {', '.join(sorted(names.files()))}")
    print_line(f"next: cd {folder} && pip install -e . && pytest -q", err=True)


def check_name(name: str) -> None:
    """Raise UsageError for a name that cannot be an entry point and a module, or that is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*", name):
        raise UsageError(f"{name!r} is not a plugin name", hint="use lower-case letters, digits and hyphens: my-plugin")
    if entry := next((entry for entry in discover_plugins() if entry.name == name), None):
        raise UsageError(
            f"{name!r} is already a {entry.kind} of {entry.distribution}",
            hint="choose another name: names of plugins must be unique",
        )


def write_package(folder: Path, names: Names) -> None:
    """Write the files. Raises UsageError if the folder exists or cannot be created."""
    try:
        folder.mkdir(parents=True)
        for name, text in names.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder}: {error_message(error)}", hint="choose another name, or a folder with --into"
        ) from error
