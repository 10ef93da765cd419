"""The command ``spec compare``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_cli import common
from spec_cli.prompts import Prompt, read

from spec_compare.results import Results

if TYPE_CHECKING:
    from spec_cli.common import Settings

    from spec_compare.contenders import Contender
    from spec_compare.measure import Lap, Terms
    from spec_core import Target

COMPARE = [
    click.option("--prompts", "file", type=click.Path(path_type=Path), help='JSONL of {"id", "family", "prompt"}.'),
    click.option("--chat", is_flag=True, help="Apply the model's chat template to prompts, as a user message."),
    click.option("--family", "families", multiple=True, help="Only these families of prompts."),
    click.option("--limit", type=click.IntRange(1), help="Max prompts of each family."),
    click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Measurements per prompt."),
    click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts per batch."),
]


@click.command()
@common.add(common.MODEL, common.METHODS, common.GENERATION, COMPARE)
@click.option("--out", type=click.Path(path_type=Path), help="A directory for results.jsonl and summary.json.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
def compare(out: Path | None, as_json: bool, **flags: Any) -> int:
    """Compare methods with plain decoding, measured in the same run.

    Each --method is a contender; A+B is a chain of two. The default prompts come with the model. If a contender's
    text differs from plain decoding's, its speed is not shown and the exit code is 1.
    Instead of "prompt", a line of --prompts may have "messages", a chat for the model's template, or "tokens", ids.
    """
    from spec_cli import machine

    from spec_compare import contenders, difference, prompts, summary, table, timing_warnings

    choice = common.take(flags, "file", "families", "limit", "chat")
    scale = common.take(flags, "repeats", "batch")
    settings = common.settings_of(flags)
    results = None if out is None else Results(out)
    terms = terms_of(settings, **scale)
    target = common.checked_target(settings, contenders.chains(settings))
    file = choice["file"] or prompts.shipped(target)
    asked = prompts.chosen(read(file, choice["chat"]), file.name, choice["families"], choice["limit"])
    chosen = prompts.fitting(asked, target)
    entered = contenders.contenders(target, settings, terms.batch)
    labels = prepared(entered, chosen, settings, terms)
    if results is not None:
        results.make_room()
    before = machine.moment()
    laps = list(kept(measured(entered, chosen, target, terms), results))
    load = machine.load_between(before, machine.moment())
    rows = summary.rows(laps, labels)
    warnings = timing_warnings.found_in(laps, rows, load, target.info.device)
    differing = difference.differences(laps, labels, chosen, target, terms)
    body: dict[str, Any] = {
        "rows": [attrs.asdict(r) for r in rows],
        "differences": [attrs.asdict(d) for d in differing],
    }
    body |= {"warnings": [attrs.asdict(c) for c in warnings], "load": attrs.asdict(load)}
    body |= circumstances(target, settings, terms)
    if results is not None:
        results.conclude(body)
    if as_json:
        click.echo(common.as_json(body))
    else:
        table.show(rows, differing, warnings)
    return 1 if differing else 0


def terms_of(settings: Settings, repeats: int, batch: int) -> Terms:
    from spec_compare.measure import Terms

    return Terms(settings["max_tokens"], common.sampling_of(settings), settings["seed"], repeats, batch)


def prepared(entered: list[Contender], chosen: list[Prompt], settings: Settings, terms: Terms) -> dict[str, str]:
    """Make every run once, so that refusals come before measurements, and warm it up. Returns the labels."""
    from spec_compare.contenders import labels
    from spec_compare.measure import warm

    with ExitStack() as made:
        runs = {c.name: made.enter_context(c.make()) for c in entered}
        common.note_owners(runs.values(), settings)
        warm(runs, chosen, terms)
        return labels(runs, terms.sampling.temperature)


def kept(laps: Iterable[Lap], results: Results | None) -> Iterator[Lap]:
    """Passes the laps on, and writes each one before the next is run."""
    for lap in laps:
        if results is not None:
            results.add(lap)
        yield lap


def measured(entered: list[Contender], chosen: list[Prompt], target: Target, terms: Terms) -> Iterator[Lap]:
    """Runs the laps and shows the progress."""
    from spec_compare.measure import batches, measure
    from spec_compare.progress import progress

    common.note(
        f"{target.info.name}: {len(chosen)} prompts, {len(entered)} contenders, at most {terms.max_tokens} tokens each"
    )
    if said := target.info.extras.get("kernels"):
        common.note(f"kernels: {said}")
    total = len(batches(chosen, terms.batch)) * terms.repeats * len(entered)
    with progress(total) as on_lap:
        yield from measure(entered, chosen, terms, on_lap)


def circumstances(target: Target, settings: Settings, terms: Terms) -> dict[str, Any]:
    """Facts that a measurement depends on, written beside it."""
    from spec_cli.env import environment

    return {
        "target": target.info.name,
        "device": target.info.device,
        "dtype": target.info.dtype,
        "exact": target.info.exactness,
        "threads": target.info.extras.get("threads"),
        "kernels": target.info.extras.get("kernels"),
        "seed": terms.seed,
        "repeats": terms.repeats,
        "batch": terms.batch,
        "environment": environment(),
        "settings": settings.as_json(),
    }
