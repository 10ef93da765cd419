"""Installed plugins, from entry-point metadata: nothing is imported until it is selected."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import Any

import attrs

from spec_core.errors import FOREIGN, UsageError, message, nearest_names
from spec_core.installed import read_entry_points

GROUPS = {
    "method": "spec_core.methods",
    "rule": "spec_core.rules",
    "rollback": "spec_core.rollback",
    "control": "spec_core.control",
    "target": "spec_core.targets",
    "command": "spec_core.commands",
    "choice": "spec_core.method_choice",
}
"""The kinds of plugin, and the entry-point group of each."""
TABLES = "spec_core.settings"
"""The entry-point group of tables of settings, by the name of the command that has them."""
OURS = "spec-core"
"""The distribution of the plugins that come with the core."""
PLUGIN_KINDS = ("method", "rule", "rollback", "control")


@attrs.frozen
class Entry:
    """An installed plugin, known from metadata; the name of its distribution is read on demand."""

    name: str
    kind: str
    point: metadata.EntryPoint = attrs.field(repr=False, eq=False)

    @property
    def distribution(self) -> str:
        return self._fact("name")

    @property
    def version(self) -> str:
        return self._fact("version")

    def _fact(self, name: str) -> str:
        """What the package says of itself; it may say nothing, or what cannot be read."""
        try:
            return str(getattr(self.point.dist, name, None) or "?")
        except Exception:  # the file may hold anything
            return "?"


def discover_plugins(kinds: Iterable[str] = tuple(GROUPS)) -> list[Entry]:
    """Installed plugins of these kinds, by kind and name. Imports nothing."""
    return [Entry(point.name, kind, point) for kind in kinds for point in installed_points(GROUPS[kind])]


def installed_points(group: str) -> list[metadata.EntryPoint]:
    """Entry points of a group, by name."""
    return sorted(read_entry_points(group=group), key=lambda point: point.name)


def setting_owners() -> set[str]:
    """First parts of dotted settings: names of plugins, and of commands that have settings."""
    return {entry.name for entry in discover_plugins(PLUGIN_KINDS)} | {point.name for point in installed_points(TABLES)}


def find_plugin(name: str, kinds: Iterable[str] = PLUGIN_KINDS) -> Entry:
    """The installed plugin of that name.

    Raises UsageError with the known names, nearest first, or with all plugins of that name if there are several.
    """
    kinds = tuple(kinds)
    entries = discover_plugins(kinds)
    matches = [entry for entry in entries if entry.name == name]
    if len(matches) > 1:
        several = ", ".join(f"{e.kind} of {e.distribution} {e.version}" for e in matches)
        strangers = [e.distribution for e in matches if e.distribution != OURS] or [matches[-1].distribution]
        raise UsageError(
            f"{name!r} is the name of several plugins: {several}",
            hint=f"remove all but one, such as: pip uninstall {strangers[-1]}",
        )
    if matches:
        return matches[0]
    raise UsageError(
        f"no {' or '.join(kinds)} named {name!r} is installed",
        hint=_instead(name)
        or f"installed: {nearest_names(name, (e.name for e in discover_plugins(_named_like(kinds))))}",
    )


def _named_like(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds, and names that stand for methods where a method may be named."""
    return (*kinds, "choice") if "method" in kinds else kinds


def _instead(name: str) -> str | None:
    """A suggestion for a name that no plugin of the wanted kinds has."""
    kinds = {entry.name: entry.kind for entry in discover_plugins(PLUGIN_KINDS)}
    if name in kinds:
        return f"{name} is a {kinds[name]}: use --{kinds[name]}"
    if "," in name and set(name.split(",")) <= set(kinds):
        return f"give each one its own option: {' '.join(f'--method {part}' for part in name.split(','))}"
    return None


def import_plugin(entry: Entry) -> Any:
    """The object that an entry point names. Raises UsageError if it cannot be imported."""
    try:
        return entry.point.load()
    except FOREIGN as error:  # importing runs the module, which may raise anything
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        raise UsageError(
            f"{entry.kind} {entry.name!r} of {entry.distribution} {entry.version} cannot be imported: "
            f"{kind}{message(error)}",
            hint=f"install what it needs, or remove it: pip uninstall {entry.distribution}",
        ) from error
