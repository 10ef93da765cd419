"""``--debug`` and ``SPEC_DEBUG=1``: an error is shown with its traceback."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

DEBUG = "SPEC_DEBUG"
OFF = ("", "0", "false", "no", "off")


def _noted(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(dict)["debug"] = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_noted, help="Show the traceback behind an error."
)
"""Before the command or, where it takes a model, after it."""


def debugging(flags: Mapping[str, bool]) -> bool:
    """Was it asked for? flags: what the options of this call noted."""
    return flags.get("debug", False) or os.environ.get(DEBUG, "").lower() not in OFF
