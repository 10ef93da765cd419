"""Writes the report of a comparison from a template; everything that comes from prompts or results is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_commands import common
from spec_commands.common import print_note

from spec_compare.columns import COLUMNS, informative_columns, title
from spec_compare.outcome import Outcome
from spec_compare.records.header import TargetFacts
from spec_compare.report.figures import Figure, figures
from spec_compare.report.reliability import reliability
from spec_compare.report.reported_texts import clean, sources, texts
from spec_compare.summary import ALL
from spec_compare.table import describe_difference, reading

HERE = Path(__file__).parent
ENVIRONMENT = ("python", "system", "cpu", "simd", "kernels")


def write(path: Path, result: Outcome) -> None:
    """Write the report. Raises UsageError if the file cannot be written."""
    try:
        common.write(path, page(result).encode("utf-8", "replace"))
    except OSError as error:
        raise common.unwritable(path, error) from error
    print_note(f"written: {path}")


def page(result: Outcome) -> str:
    """The whole page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    shown, hidden = texts(result)
    return templates.get_template("report.html").render(
        style=Markup((HERE / "report.css").read_text("utf-8")),
        header=result.header,
        target=result.header.targets[0],
        facts=facts(result),
        tables=tables(result),
        readings=[line for row in result.rows if row.family == ALL and (line := reading(row))],
        warnings=result.warnings,
        differences=result.differences,
        said=describe_difference,
        figures=[(figure, Markup(figure.svg)) for figure in _figures(result)],
        prompts=shown,
        hidden=hidden,
        sources=sources(shown),
        traced=any(one.spans for prompt in shown for one in prompt.texts),
    )


def _figures(result: Outcome) -> Iterator[Figure]:
    yield from figures(result)
    contenders = [row.contender for row in result.rows if row.family == ALL and row.draft_acceptance is not None]
    if (figure := reliability(result, contenders)) is not None:
        yield figure


def tables(result: Outcome) -> list[tuple[str, list[str], list[list[str]]]]:
    """(heading, columns, cells) of the table over all prompts, then of each family."""
    batch = result.header.batch
    names = [ALL, *dict.fromkeys(row.family for row in result.rows if row.family != ALL)]
    sections = []
    for family in names[:1] if len(names) == 2 else names:
        rows = [row for row in result.rows if row.family == family]
        columns = informative_columns(rows, True, batch)
        heading = f"{'All families' if family == ALL else family}, {rows[0].prompts} prompts"
        level = result.header.interval
        sections.append(
            (heading, [title(c, batch, level) for c in columns], [[COLUMNS[c](row) for c in columns] for row in rows])
        )
    return sections


def facts(result: Outcome) -> list[tuple[str, str]]:
    """Facts that the numbers depend on."""
    header = result.header
    settings = {name: setting.value for name, setting in header.settings.items()}
    rows: list[tuple[str, Any]] = [
        ("date", header.date),
        ("command", " ".join(header.command)),
        *(row for target in header.targets for row in _facts_of(target)),
        ("machine", f"{header.host}, {header.processors} processors"),
        *((name, header.environment.get(name)) for name in ENVIRONMENT if name != "kernels"),
        ("packages", _packages(header.environment.get("packages"))),
        ("commit", header.commit),
        ("prompts", f"{header.prompts.source}: {sum(header.prompts.families.values())}"),
        ("repeats, batch, seed", f"{header.repeats}, {header.batch}, {header.seed}"),
        ("temperature, max tokens", f"{settings.get('temperature')}, {settings.get('max_tokens')}"),
        ("other programs", None if result.load.others is None else f"{result.load.others:.2f} processors busy"),
        ("interval", f"{header.interval:.0%}, bootstrap over prompts, {header.resamples} resamples"),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _facts_of(target: TargetFacts) -> list[tuple[str, Any]]:
    """The rows of one model; a comparison may have several."""
    return [
        ("model", f"{target.name} ({target.model}), {target.dtype} on {target.device}"),
        ("weights", ", ".join(f"{n} {kind}" for kind, n in target.quantisation.items())),
        ("kernels", target.kernels),
        ("exactness", target.exact),
        ("threads", target.threads),
    ]


def _packages(packages: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in packages.items()) if isinstance(packages, dict) else ""
