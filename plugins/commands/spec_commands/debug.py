"""``--debug`` and ``SPEC_DEBUG=1``: an error is shown with its traceback."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

DEBUG = "SPEC_DEBUG"
OFF = ("", "0", "false", "no", "off")


def _note_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(dict)["debug"] = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show the traceback of an error."
)
"""Accepted before the command; also after it, for commands that take a model."""


def is_debugging(flags: Mapping[str, bool]) -> bool:
    """Whether tracebacks were requested. flags: this call's."""
    return flags.get("debug", False) or os.environ.get(DEBUG, "").lower() not in OFF
