"""``spec settings``: every value and where it came from."""

from __future__ import annotations

from typing import Any

import attrs
import click

from spec_core.commands import common
from spec_core.discovery import find, imported
from spec_core.settings import DEFAULT, Setting, Settings


@click.command()
@common.add(common.MODEL, common.METHODS, common.SAMPLING)
@click.option("--toml", "as_toml", is_flag=True, help="A settings file that reproduces them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def settings(as_toml: bool, as_json: bool, **flags: Any) -> None:
    """Print the resolved settings with their origins. Name methods to see their settings too."""
    resolved = with_plugins(common.settings_of(flags))
    if as_toml:
        click.echo(resolved.as_toml(), nl=False)
    elif as_json:
        click.echo(common.as_json(resolved.as_json()))
    else:
        for name, setting in resolved.table.items():
            value = "" if setting.value is None else str(setting.value)
            click.echo(f"{name:26}{value:20}{setting.origin:14}{setting.help}")


def with_plugins(resolved: Settings) -> Settings:
    """The table with every setting of the selected plugins, their defaults included."""
    table = dict(resolved.table)
    chosen = [*resolved["methods"], *(n for n in (resolved["rule"], resolved["rollback"]) if n)]
    for spec in chosen:
        name, equals, file = spec.partition("=")
        cls = imported(find(name))
        if not attrs.has(cls):
            continue
        for field in attrs.fields(cls):
            if field.init and not field.name.startswith("_"):
                key = f"{name}.{field.name}"
                given = table.get(key)
                value = given.value if given else (file if equals and field.name == "file" else _default(field))
                table[key] = Setting(key, value, given.origin if given else DEFAULT, field.metadata.get("help", ""))
    return Settings(table)


def _default(field: attrs.Attribute) -> Any:
    default = field.default
    if isinstance(default, attrs.Factory):
        return default.factory() if not default.takes_self else None
    return None if default is attrs.NOTHING else default
