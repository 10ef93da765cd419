"""The command ``spec compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from spec_core.commands import common

if TYPE_CHECKING:
    from spec_compare.contenders import Contender
    from spec_compare.measure import Lap, Terms
    from spec_compare.prompts import Prompt
    from spec_core.settings import Settings
    from spec_core.target import Target

COMPARE = [
    click.option("--prompts", "file", type=click.Path(path_type=Path), help='JSONL of {"id", "family", "prompt"}.'),
    click.option("--family", "families", multiple=True, help="Only these families of prompts."),
    click.option("--limit", type=click.IntRange(1), help="Most prompts of each family."),
    click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Measurements per prompt."),
    click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts that run together."),
]


@click.command()
@common.add(common.MODEL, common.METHODS, common.SAMPLING, COMPARE)
@click.option("--out", type=click.Path(path_type=Path), help="A directory for results.jsonl and summary.json.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
def compare(out: Path | None, as_json: bool, **flags: Any) -> int:
    """Compare methods with plain decoding, measured in the same run.

    Each --method is a contender; A+B is a chain of two. Prompts may ship with the model. No speed is shown for a
    contender whose text is not plain's own; the exit code is 1 then.
    """
    from spec_compare import contenders, difference, prompts, summary, table

    choice = common.take(flags, "file", "families", "limit")
    scale = common.take(flags, "repeats", "batch")
    settings = common.settings_of(flags)
    terms = terms_of(settings, **scale)
    target = common.checked_target(settings, contenders.chains(settings))
    chosen = prompts.read(choice["file"] or prompts.shipped(target), choice["families"], choice["limit"])
    prompts.check_fit(chosen, target)
    entered = contenders.contenders(target, settings, terms.batch)
    labels = prepared(entered, chosen, settings, terms)
    if out is not None:
        make_folder(out)
    laps = measured(entered, chosen, target, terms)
    rows = summary.rows(laps, labels)
    differing = difference.differences(laps, labels, chosen, target, terms)
    body = {"rows": [attrs.asdict(r) for r in rows], "differences": [attrs.asdict(d) for d in differing]}
    body |= circumstances(target, settings, terms)
    if out is not None:
        write(out, laps, body)
    if as_json:
        click.echo(common.as_json(body))
    else:
        table.show(rows, differing)
    return 1 if differing else 0


def terms_of(settings: Settings, repeats: int, batch: int) -> Terms:
    from spec_compare.measure import Terms

    return Terms(settings["n"], common.sampling_of(settings), settings["seed"], repeats, batch)


def prepared(entered: list[Contender], chosen: list[Prompt], settings: Settings, terms: Terms) -> dict[str, str]:
    """Make every run once: refusals come before measurements, and everybody warms up. Returns the labels."""
    from spec_compare.contenders import labels
    from spec_compare.measure import warm

    runs = {c.name: c.make() for c in entered}
    common.note_owners(runs.values(), settings)
    warm(runs, chosen, terms)
    return labels(runs, terms.sampling.temperature)


def measured(entered: list[Contender], chosen: list[Prompt], target: Target, terms: Terms) -> list[Lap]:
    from spec_compare.measure import batches, measure
    from spec_compare.progress import progress

    common.note(f"{target.info.name}: {len(chosen)} prompts, {len(entered)} contenders, at most {terms.n} tokens each")
    total = len(batches(chosen, terms.batch)) * terms.repeats * len(entered)
    with progress(total) as told:
        return list(measure(entered, chosen, terms, told))


def circumstances(target: Target, settings: Settings, terms: Terms) -> dict[str, Any]:
    """What a number depends on, carried with it."""
    from spec_core.commands.env import environment

    return {
        "target": target.info.name,
        "device": target.info.device,
        "dtype": target.info.dtype,
        "exact": target.info.extras.get("exact"),
        "threads": target.info.extras.get("threads"),
        "seed": terms.seed,
        "repeats": terms.repeats,
        "batch": terms.batch,
        "environment": environment(),
        "settings": settings.as_json(),
    }


def make_folder(out: Path) -> None:
    """The place for results: what is wrong with it is said before anything is measured. Raises UsageError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise common.unwritable(out, error) from error


def write(out: Path, laps: list[Lap], body: dict[str, Any]) -> None:
    """results.jsonl, a line per prompt, contender and repeat, and summary.json. Raises UsageError."""
    try:
        with (out / "results.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(common.as_json(line) + "\n" for lap in laps for line in lines(lap))
        (out / "summary.json").write_text(json.dumps(body, indent=1, ensure_ascii=False, default=str), "utf-8")
    except OSError as error:
        raise common.unwritable(out, error) from error
    common.note(f"written: {out / 'results.jsonl'}, {out / 'summary.json'}")


def lines(lap: Lap) -> list[dict[str, Any]]:
    """Records of a lap; ``lap`` carries what all its prompts share."""
    shared = {name: getattr(lap, name) for name in ("seconds", "split", "forwards", "rows")}
    shared["prompts"] = [record.prompt for record in lap.records]
    own = [attrs.asdict(record, filter=lambda field, _: field.name != "tally") for record in lap.records]
    return [record | {"lap": shared} for record in own]
