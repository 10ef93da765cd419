"""Checks of how commands make a plugin: its class, with settings from text."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import attrs
import pytest

from spec_core.assembly.construct import construct_plugin, setting_fields
from spec_core.assembly.discovery import PLUGIN_KINDS, Entry, discover_plugins, find_plugin, import_plugin
from spec_core.testing.conformance.base import Conformance, expect
from spec_core.testing.conformance.probes import SUBJECT
from spec_core.testing.conformance.promise import promise

SHOWING = "settings"
"""The command that makes a plugin and prints its settings."""
OPTIONS = {"method": "--method", "control": "--method", "rule": "--rule", "rollback": "--rollback"}


class SettingsChecks(Conformance):
    """Part of the classes of methods, rules, owners and controllers."""

    @promise("Commands can make it: the types of its settings resolve, and each accepts its own value as text.")
    def test_it_is_made_from_its_settings(self) -> None:
        plugin = self.make()
        cls = type(plugin)
        settings = values_as_text(plugin)
        required = [f.name for f in required_fields(cls) if f.name not in settings]
        if required:
            pytest.skip(f"no text can be its setting {', '.join(required)}")
        rebuilt = construct_plugin(cls, settings, SUBJECT)
        expect(type(rebuilt) is cls, f"{cls.__name__}(...) made a {type(rebuilt).__name__}")
        if (entry := entry_of(cls)) is not None:
            show_settings(entry, settings)


def required_fields(cls: type) -> list[attrs.Attribute[Any]]:
    """Fields without a default."""
    return [field for field in attrs.fields(cls) if field.default is attrs.NOTHING] if attrs.has(cls) else []


def values_as_text(plugin: Any) -> dict[str, str]:
    """{setting: its value, as written on a command line}, for all values that can be written there."""
    fields = setting_fields(type(plugin), SUBJECT) if attrs.has(type(plugin)) else {}
    texts = {name: as_text(getattr(plugin, name)) for name, field in fields.items() if field.type is not None}
    return {name: text for name, text in texts.items() if text is not None}


def as_text(value: Any) -> str | None:
    """A simple value, or a tuple of simple values, as text; None for any other."""
    if isinstance(value, tuple):
        parts = [as_text(part) for part in value]
        return None if None in parts else ",".join(map(str, parts))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value is not None and isinstance(value, int | float | str | Path) else None


def entry_of(cls: type) -> Entry | None:
    """The entry point that names the class; None if it is not installed."""
    name = (cls.__module__, cls.__qualname__)
    return next(
        (entry for entry in discover_plugins(PLUGIN_KINDS) if (entry.point.module, entry.point.attr) == name), None
    )


def show_settings(entry: Entry, settings: dict[str, str]) -> None:
    """Run the command that shows the settings of an installed plugin, if there is one."""
    if not any(command.name == SHOWING for command in discover_plugins(("command",))):
        return
    own = [part for name, text in settings.items() for part in ("-o", f"{entry.name}.{name}={text}")]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        import_plugin(find_plugin(SHOWING, ("command",))).main(
            [OPTIONS[entry.kind], entry.name, *own], standalone_mode=False
        )
    expect(bool(printed.getvalue()), f"`spec {SHOWING} {OPTIONS[entry.kind]} {entry.name}` printed nothing")
