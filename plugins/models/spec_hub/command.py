"""``spec get``: a model or draft head of a hub, downloaded into the cache."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from spec_commands.common import print_note
from spec_commands.debug import debug_option
from spec_commands.help import Command
from spec_commands.printing import print_line

if TYPE_CHECKING:
    from spec_hub.hub_name import HubName

SHOWN = 4
"""Drafters of a repository that are named."""


@click.command(cls=Command)
@click.argument("name", metavar="ORG/NAME[@REVISION][:FILE or quantisation]")
@debug_option
def get(name: str) -> None:
    """Download a model or draft head of a hub, and print its path and the command that runs it.

    A quantisation such as Q4_K_M names one GGUF file of a repository, with all its parts. A download that was
    interrupted goes on where it was. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are honoured.
    """
    from spec_hub.client import connect_hub
    from spec_hub.fetch import fetch_listed, fetch_model
    from spec_hub.hub_name import parse_name

    parsed, hub = parse_name(name), connect_hub()
    listing = None if hub.offline else hub.list_files(parsed)
    path = fetch_model(parsed, hub) if listing is None else fetch_listed(parsed, hub, listing)
    print_line(path)
    files = [] if listing is None else [file.path for file in listing.files]
    for line in next_steps(parsed, path.name, files):
        print_note(line)


def next_steps(name: HubName, opened: str, files: Iterable[str]) -> list[str]:
    """The command that runs what was fetched, and commands that fetch drafters for it.

    opened: name of the file that was fetched. files: of its repository.
    """
    from spec_hub.pairs import pairs, published_pairs
    from spec_hub.selection import is_drafter

    published = next((pair for pair in pairs() if pair.drafter == name.repository), None)
    quoted = shlex.quote(str(name))
    if published is not None:
        return [f"run it with its target: spec generate -m MODEL --method {published.kind}={quoted} -p PROMPT"]
    if is_drafter(opened):
        return [f"run its model with it: spec generate -m hub:{name.repository} --method best -p PROMPT"]
    drafters = [path for path in files if is_drafter(path)]
    own = [f"its repository has a drafter: spec get {shlex.quote(f'{name.repository}:{p}')}" for p in drafters[:SHOWN]]
    own += [f"and {len(drafters) - SHOWN} other drafters"] if len(drafters) > SHOWN else []
    kinds = [(pair.kind, pair.drafter) for pair in published_pairs([name.repository])]
    more = [f"a drafter for {kind} is published for it: spec get {drafter}" for kind, drafter in kinds]
    return [f"run it: spec generate -m {quoted} --method best -p PROMPT", *own, *more]
