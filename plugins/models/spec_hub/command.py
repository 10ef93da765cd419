"""``spec get``: a model or draft head of a hub, downloaded into the cache."""

from __future__ import annotations

import shlex

import click
from spec_commands.common import print_note
from spec_commands.debug import debug_option
from spec_commands.printing import say


@click.command()
@click.argument("name", metavar="ORG/NAME[@REVISION][:FILE or quantisation]")
@debug_option
def get(name: str) -> None:
    """Download a model or draft head of a hub, and print its path and the command that runs it.

    A quantisation such as Q4_K_M names one GGUF file of a repository, with all its parts. A download that was
    interrupted goes on where it was. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are honoured.
    """
    from spec_hub.client import connect
    from spec_hub.fetch import fetch
    from spec_hub.hub_name import parse_name

    parsed = parse_name(name)
    path = fetch(parsed, connect())
    say(path)
    print_note(f"spec generate -m {shlex.quote(str(parsed))} --method best -p 'def add(a, b):'")
