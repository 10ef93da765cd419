"""``spec plugins``: what is installed, from metadata alone."""

from __future__ import annotations

from typing import Any

import click

from spec_core.commands import common
from spec_core.discovery import PLUGIN_KINDS, Entry, discover, imported


@click.command()
@click.option("--hooks", is_flag=True, help="List the hooks each implements; this imports them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def plugins(hooks: bool, as_json: bool) -> None:
    """List installed plugins: name, kind, distribution, version."""
    for entry in discover():
        row: dict[str, Any] = {
            "name": entry.name,
            "kind": entry.kind,
            "distribution": entry.distribution,
            "version": entry.version,
        }
        if hooks:
            row["hooks"] = _hooks(entry)
        click.echo(common.as_json(row) if as_json else _line(row))


def _hooks(entry: Entry) -> list[str]:
    from spec_core.guard import HOOKS, MARK

    if entry.kind not in PLUGIN_KINDS:
        return []
    cls = imported(entry)
    return [hook for hook in HOOKS if hasattr(getattr(cls, hook, None), MARK)]


def _line(row: dict) -> str:
    where = f"{row['distribution']} {row['version']}"
    return f"{row['name']:16}{row['kind']:10}{where:24}{', '.join(row.get('hooks', []))}".rstrip()
