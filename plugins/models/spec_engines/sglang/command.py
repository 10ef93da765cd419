"""The command ``spec sglang serve``: asks the methods first, then becomes SGLang's own server."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click
from spec_commands import common
from spec_commands.help import Group

from spec_core.commands import DEFAULT, Settings
from spec_engines.sglang import DRAFT_MAX, VARIABLE, check_installed, options

SERVER = "sglang.launch_server"


@click.group(cls=Group)
def sglang() -> None:
    """Methods inside SGLang."""


@sglang.command(context_settings={"ignore_unknown_options": True})
@click.argument("model")
@common.options(common.METHODS[:1], common.METHODS[-1:])
@click.option("--draft-max", "draft_max", type=int, help="Longest draft; SGLang evaluates one row more.")
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="A setting of a plugin: NAME.key=value.")
@click.option("--dry-run", is_flag=True, help="Print SGLang's command and its environment instead of starting it.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(model: str, dry_run: bool, arguments: tuple[str, ...], **flags: Any) -> None:
    """Start SGLang's server on MODEL, a directory, with methods as its drafters.

    The methods are checked against the model before SGLang starts. ARGUMENTS go to SGLang's server as they are.
    Requests set ``spec_draft_max`` and ``spec_methods`` in ``custom_params``.
    """
    check_installed()
    command = command_of(model, common.settings_of(flags), arguments)
    if dry_run:
        click.echo(json.dumps({"command": command, VARIABLE: os.environ[VARIABLE]}))
        return
    os.execv(sys.executable, command)


def command_of(model: str, settings: Settings, arguments: tuple[str, ...] = ()) -> list[str]:
    """SGLang's command; the methods are in the environment. Raises UsageError, Refused before SGLang runs."""
    from spec_engines.sglang.model import check_location

    chosen = common.plugin_settings(settings)
    control = None if settings["control"] == "fixed" else settings["control"]
    draft_max = DRAFT_MAX if settings.table["draft_max"].origin == DEFAULT else settings["draft_max"]
    flags = options(settings["methods"], draft_max, chosen, control)
    plugins = check_location(model, json.loads(os.environ[VARIABLE]))
    common.check_used(settings, [c.name for c in plugins])
    words = [sys.executable, "-m", SERVER, "--model-path", model]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return [*words, *arguments]
