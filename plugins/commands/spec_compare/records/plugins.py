"""The plugins that took part in a comparison: where they come from, and the hash of their code."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from spec_compare.records.header import PluginFacts
from spec_core import Run
from spec_core.commands import PLUGIN_KINDS, Entry, discover_plugins

CODE = (".py", ".so", ".pyd")
"""Suffixes of files with code."""
KINDS = (*PLUGIN_KINDS, "target")


def plugin_facts(runs: Iterable[Run]) -> list[PluginFacts]:
    """Every plugin of these runs once, the target included, by name."""
    installed = discover_plugins(KINDS)
    facts = {
        chosen.name: _facts(chosen.name, chosen.plugin, chosen.plugin is run.target, installed)
        for run in runs
        for chosen in run.plugins
    }
    return [facts[name] for name in sorted(facts)]


def _facts(name: str, plugin: Any, is_target: bool, installed: list[Entry]) -> PluginFacts:
    package = package_of(plugin)
    entries = [
        e for e in installed if e.point.module.partition(".")[0] == package and (e.kind == "target") == is_target
    ]
    entry = next((e for e in entries if e.name == name), entries[0] if entries and is_target else None)
    installed_from = None if entry is None else entry.point.dist
    return PluginFacts(
        name=name,
        kind="target" if is_target else None if entry is None else entry.kind,
        distribution=None if installed_from is None else installed_from.name,
        version=None if installed_from is None else installed_from.version,
        package=package,
        sha256=code_sha256(package),
    )


def package_of(plugin: Any) -> str:
    """The top-level package or module of a plugin's class."""
    return type(plugin).__module__.partition(".")[0]


@lru_cache
def code_sha256(package: str) -> str | None:
    """SHA-256 over the names and contents of the code of a package; None if it has no files."""
    digest, count = hashlib.sha256(), 0
    for name, file in _code(package):
        try:
            data = file.read_bytes()
        except OSError:
            return None
        digest.update(f"{name} {len(data)}\n".encode() + data)
        count += 1
    return digest.hexdigest() if count else None


def _code(package: str) -> Iterator[tuple[str, Path]]:
    """The files with code and their names, in the order of names."""
    module = sys.modules.get(package)
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    if not folders and (file := getattr(module, "__file__", None)):
        yield Path(file).name, Path(file)
    for folder in folders:
        files = (file for file in folder.rglob("*") if file.suffix in CODE and file.is_file())
        yield from sorted((file.relative_to(folder).as_posix(), file) for file in files)
