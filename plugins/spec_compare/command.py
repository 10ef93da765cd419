"""The command ``spec compare``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from spec_core.commands import common
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_compare.measure import Contender, Record
    from spec_core.run import Run
    from spec_core.settings import Settings
    from spec_core.target import Target


@click.command()
@common.add(common.MODEL, common.METHODS, common.SAMPLING)
@click.option(
    "--prompts", type=click.Path(path_type=Path), help='JSONL of {"id", "family", "prompt"}; the model may ship some.'
)
@click.option("--family", "families", multiple=True, help="Only these families.")
@click.option("--limit", type=click.IntRange(1), help="Most prompts of each family.")
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Measurements of each prompt.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Prompts that run together.")
@click.option("--out", type=click.Path(path_type=Path), help="A directory for results.jsonl and summary.json.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
def compare(
    prompts: Path | None,
    families: tuple[str, ...],
    limit: int | None,
    repeats: int,
    batch: int,
    out: Path | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Compare methods with plain decoding, measured in the same run on the same prompts.

    Each --method is a contender; A+B is a chain of two. No speed is shown for one whose text is not plain's own.
    """
    from spec_compare.difference import differences
    from spec_compare.measure import measure
    from spec_compare.prompts import read
    from spec_compare.summary import rows
    from spec_compare.table import show

    settings = common.settings_of(flags)
    target = common.target_of(settings)
    chosen = read(prompts or shipped(target), families, limit)
    contenders = contenders_of(target, settings, batch)
    lossy = {c.name: reason for c in contenders if (reason := c.run().stats.lossy)}
    sampling = common.sampling_of(settings)
    common.note(f"{target.info.name}: {len(chosen)} prompts, {len(contenders)} contenders, {settings['n']} tokens each")
    records = list(
        measure(contenders, chosen, settings["n"], sampling, settings["seed"], repeats, batch, Progress().show)
    )
    table = rows(records, lossy)
    differing = differences([r for r in records if r.contender not in lossy], chosen, target, sampling)
    body = {"rows": [attrs.asdict(r) for r in table], "differences": [attrs.asdict(d) for d in differing]}
    body |= circumstances(target, settings, repeats, batch)
    if out is not None:
        write(out, records, body)
    if as_json:
        click.echo(common.as_json(body))
    else:
        show(table, differing)
    return 1 if differing else 0


def shipped(target: Target) -> Path:
    """Prompts that came with the model. Raises UsageError where there are none."""
    path = target.info.extras.get("prompts")
    if path is None:
        raise UsageError(f"{target.info.name} ships no prompts", mend="give some: --prompts FILE.jsonl")
    return Path(path)


def contenders_of(target: Target, settings: Settings, batch: int) -> list[Contender]:
    """Plain decoding first, then every method by itself; each measurement starts cold."""
    from spec_compare.measure import Contender

    def maker(methods: list[Any]) -> Callable[[], Run]:
        return lambda: common.run_of(target, settings, methods, reuse=False, slots=batch)

    names = {spec.replace("+", " + "): spec.split("+") for spec in settings["methods"]}
    contenders = [Contender("plain", maker([]))]
    return contenders + [Contender(_short(name), maker(methods)) for name, methods in names.items()]


def _short(name: str) -> str:
    """Without the directories of files."""
    return " + ".join(part.partition("=")[0] for part in name.split(" + "))


def circumstances(target: Target, settings: Settings, repeats: int, batch: int) -> dict[str, Any]:
    """What a number depends on, carried with it."""
    from spec_core.commands.env import environment

    return {
        "target": target.info.name,
        "device": target.info.device,
        "dtype": target.info.dtype,
        "repeats": repeats,
        "batch": batch,
        "environment": environment(),
        "settings": settings.as_json(),
    }


def write(out: Path, records: list[Record], body: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "results.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(attrs.asdict(r), ensure_ascii=False) + "\n" for r in records)
    (out / "summary.json").write_text(json.dumps(body, indent=1, ensure_ascii=False, default=str), "utf-8")
    common.note(f"written: {out / 'results.jsonl'}, {out / 'summary.json'}")


class Progress:
    """A line on standard error: rewritten on a terminal, every tenth elsewhere."""

    def __init__(self) -> None:
        self.told = 0

    def show(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == total else "\r"
            click.echo(f"measured {done} of {total}{end}", err=True, nl=False)
        elif done * 10 // total > self.told:
            self.told = done * 10 // total
            common.note(f"measured {done} of {total}")
