"""``spec get``: a model or draft head of a hub, downloaded into the cache."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click
from spec_commands.common import print_note
from spec_commands.debug import debug_option
from spec_commands.printing import say

if TYPE_CHECKING:
    from spec_hub.hub_name import HubName


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
    for line in next_steps(parsed):
        print_note(line)


def next_steps(name: HubName) -> list[str]:
    """The command that runs what was fetched, and commands that fetch published drafters for it."""
    from spec_hub.pairs import pairs, published_pairs

    as_drafter = next((pair for pair in pairs() if pair.drafter == name.repository), None)
    quoted = shlex.quote(str(name))
    if as_drafter is not None:
        return [f"run it with its target: spec generate -m MODEL --method {as_drafter.kind}={quoted} -p PROMPT"]
    more = [
        f"a {pair.kind} drafter is published for it: spec get {pair.drafter}"
        for pair in published_pairs([name.repository])
    ]
    return [f"run it: spec generate -m {quoted} --method best -p PROMPT", *more]
