"""``spec settings``: every value and where it came from."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Any

import attrs
import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_core.commands import DEFAULT, Setting, Settings, discover_plugins, name_of, parse_method
from spec_core.errors import UsageError


@click.command(cls=Command)
@common.options(common.MODEL, common.METHODS, common.GENERATION)
@click.option("--toml", "as_toml", is_flag=True, help="Print a settings file that reproduces them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def settings(as_toml: bool, as_json: bool, **flags: Any) -> None:
    """Print all settings and where each came from, named plugins' included."""
    if as_toml and as_json:
        raise UsageError("--toml and --json were both passed", hint="pass one of them")
    resolved = with_plugins(common.settings_of(flags))
    if as_toml:
        sys.stdout.write(resolved.as_toml())
    elif as_json:
        print_line(common.as_json(resolved.as_json()))
    else:
        for name, setting in resolved.table.items():
            print_line(_line(f"{name:26} {_format(setting.value):19} {setting.origin:13}", setting.help))


def _line(row: str, help: str) -> str:
    """One line; on a terminal that is too narrow for it, the help is on the lines below."""
    width = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or len(row) + 1 + len(help) <= width:
        return f"{row} {help}".rstrip()
    return "\n".join([row.rstrip(), *textwrap.wrap(help, width - 1, initial_indent="    ", subsequent_indent="    ")])


def _format(value: Any) -> str:
    if value is None:
        return "-"
    return ",".join(map(str, value)) or "-" if isinstance(value, tuple) else str(value)


def with_plugins(settings: Settings) -> Settings:
    """The table with all settings of the chosen plugins, checked, defaults included. Raises UsageError."""
    table = dict(settings.table)
    chosen = [*settings["methods"], *(n for n in (settings["rule"], settings["rollback"]) if n)]
    choices = {entry.name for entry in discover_plugins(("choice",))}
    for spec in chosen:
        name, own = parse_method(spec)
        if name in choices:
            continue  # which methods it stands for depends on the target
        own_table = {key: s for key, s in table.items() if key.startswith(f"{name}.")}
        for key, value in own.items():
            own_table[f"{name}.{key}"] = attrs.evolve(table["methods"], name=f"{name}.{key}", value=value)
        table |= of_plugin(name, own_table)
    common.check_used(settings, {name_of(spec) for spec in chosen})
    return Settings(table)


def of_plugin(name: str, settings: dict[str, Setting]) -> dict[str, Setting]:
    """Settings of one plugin by dotted name. Raises UsageError for unknown names and invalid values."""
    from spec_core.commands import construct_plugin, find_plugin, import_plugin

    cls = import_plugin(find_plugin(name))
    plugin = construct_plugin(cls, {key.partition(".")[2]: s.value for key, s in settings.items()}, name)
    fields = {}
    for field in attrs.fields(cls) if attrs.has(cls) else ():
        key = f"{name}.{field.name}"
        if field.init and not field.name.startswith("_"):
            origin = settings[key].origin if key in settings else DEFAULT
            fields[key] = Setting(key, getattr(plugin, field.name), origin, field.metadata.get("help", ""))
    return fields
