"""``spec env``: versions and hardware, for a bug report."""

from __future__ import annotations

import textwrap
from typing import Any

import click
from spec_commands import common
from spec_commands.environment import environment
from spec_commands.help import Command
from spec_commands.printing import print_line

WIDTH, INDENT = 100, 12
"""Characters of a line, and of the name at its beginning."""


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def env(as_json: bool) -> None:
    """Print versions, device, threads, kernels and plugins."""
    body = environment()
    if as_json:
        print_line(common.as_json(body))
        return
    for name, value in body.items():
        lines = textwrap.wrap(_line(value), WIDTH - INDENT, break_long_words=False, break_on_hyphens=False) or [""]
        for at, line in enumerate(lines):
            print_line(f"{name if at == 0 else '':{INDENT}}{line}".rstrip())


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
