"""``spec env``: versions and hardware, for a bug report."""

from __future__ import annotations

from typing import Any

import click
from spec_commands import common
from spec_commands.environment import environment
from spec_commands.printing import say


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def env(as_json: bool) -> None:
    """Print versions, device, threads, kernels and plugins."""
    body = environment()
    if as_json:
        say(common.as_json(body))
        return
    for name, value in body.items():
        say(f"{name:12}{_line(value)}")


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
