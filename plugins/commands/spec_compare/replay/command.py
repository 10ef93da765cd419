"""The command ``spec replay``."""

from __future__ import annotations

from pathlib import Path

import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import print_line


@click.command(cls=Command)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--control", "controls", multiple=True, metavar="NAME", help="A controller; may be repeated.")
@click.option(
    "--length", "lengths", type=click.IntRange(0), multiple=True, metavar="K", help="Drafts of at most K tokens."
)
@click.option(
    "--min-chance",
    "chances",
    type=click.FloatRange(0, 1),
    multiple=True,
    metavar="P",
    help="Drafts end where the method's own estimate of the path's acceptance falls below P.",
)
@click.option("--contender", "contenders", multiple=True, metavar="NAME", help="Only these contenders.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def replay(
    directory: Path,
    controls: tuple[str, ...],
    lengths: tuple[int, ...],
    chances: tuple[float, ...],
    contenders: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run controllers and length rules over the traces of results, without a model.

    DIR was written by `spec compare --trace --out DIR`. Without options: the controller of the recording, and how many
    of its choices are the recorded ones. Drafts are never longer than the recorded ones: choices that allow more are
    counted as censored.
    """
    from spec_compare.records.reading import read_results
    from spec_compare.replay import results

    rows = results.replay_results(read_results(directory), controls, lengths, chances, contenders)
    if as_json:
        print_line(common.as_json(results.body(rows)))
    else:
        results.show_rows(rows)
