"""``spec plugins``: installed plugins, from package metadata."""

from __future__ import annotations

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_core.commands import PLUGIN_KINDS, Entry, discover_plugins, hooks_of, import_plugin
from spec_core.errors import UsageError

NAME = 16
"""Least width of the column of names."""


@click.command(cls=Command)
@click.option("--hooks", is_flag=True, help="Also list each plugin's hooks, or why it cannot be imported.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def plugins(hooks: bool, as_json: bool) -> None:
    """List installed plugins: name, kind, distribution, version, description."""
    plugins_by_kind = discover_plugins()
    width = max((len(entry.name) for entry in plugins_by_kind), default=0) + 1
    for entry in plugins_by_kind:
        row: dict[str, Any] = {
            "name": entry.name,
            "kind": entry.kind,
            "distribution": entry.distribution,
            "version": entry.version,
            "description": describe_plugin(entry.point.module, entry.point.attr),
        }
        if hooks:
            row |= _hooks(entry)
        print_line(common.as_json(row) if as_json else _line(row, max(width, NAME)))


def find_source(module: str) -> Path | None:
    """File of a module's source, found without importing its parents; None where there is none."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or not rest:
        return None if spec is None or spec.origin is None else Path(spec.origin)
    paths = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    files = [file for path in paths for file in (path / "__init__.py", path.with_suffix(".py"))]
    return next((file for file in files if file.is_file()), None)


def describe_plugin(module: str, name: str, depth: int = 3) -> str:
    """First line of a plugin's docstring, read from the source of its module; empty where there is none.

    Nothing is imported: that may take a second, or fail.
    """
    try:
        file = find_source(module)
        tree = ast.parse("" if file is None else file.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError, ImportError):  # a stranger's file may hold anything
        return ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            lines = inspect.cleandoc(ast.get_docstring(node) or "").splitlines()
            return lines[0] if lines else ""
        if isinstance(node, ast.ImportFrom) and node.level == 0 and depth:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return describe_plugin(node.module or "", alias.name, depth - 1)
    return ""


def _hooks(entry: Entry) -> dict[str, Any]:
    """The hooks of a plugin, or the error if it cannot be imported."""
    if entry.kind not in PLUGIN_KINDS:
        return {"hooks": []}
    try:
        cls = import_plugin(entry)
    except UsageError as error:
        return {"hooks": [], "problem": error.reason}
    return {"hooks": hooks_of(cls)}


def _line(row: dict, width: int) -> str:
    """width: of the column of names."""
    where = f"{row['distribution']} {row['version']}"
    summary = row.get("problem") or ", ".join(row.get("hooks", [])) or row["description"]
    return f"{row['name']:{width}}{row['kind']:10}{where:24}{summary}".rstrip()
