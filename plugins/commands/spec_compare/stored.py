"""``spec compare show``, ``merge`` and ``export``: work on the results of earlier comparisons, without a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from spec_commands import common
from spec_commands.printing import print_line

from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_compare.figures.outcome import Outcome

DIRECTORY = click.Path(path_type=Path)
LEVEL = click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Level of the intervals, such as 0.95; the default is the recorded one, 0.9.",
)
ANONYMOUS = click.option("--anonymous", is_flag=True, help="Leave out the machine's name, paths and the command line.")


@click.command()
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.option("--against", metavar="NAME", help="Show every contender against this one too.")
@click.option("--wide", is_flag=True, help="All columns, however wide.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
@LEVEL
def show(directory: Path, against: str | None, wide: bool, as_json: bool, level: float | None) -> int:
    """Print the tables of results, recomputed from their records.

    An interrupted comparison has tables of the prompts that every contender has finished.
    """
    from spec_compare.figures import outcome, table
    from spec_compare.records.reading import read_results

    comparison = read_results(directory)
    if not comparison.complete:
        common.print_note(f"{directory}: {len(comparison.laps)} of {comparison.header.laps} laps are finished")
    result = outcome.recompute_outcome(comparison, level)
    if not result.laps:
        raise UsageError(f"{directory} has no prompt that every contender finished", hint="continue the comparison")
    if as_json:
        print_line(common.as_json(result.body()))
    else:
        table.show_outcome(result, wide, against)
    return 1 if result.differences else 0


@click.command()
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.argument("file", metavar="FILE", type=DIRECTORY)
@LEVEL
@ANONYMOUS
def report(directory: Path, file: Path, level: float | None, anonymous: bool) -> None:
    """Write the HTML report of results: tables, figures and texts in one file."""
    from spec_compare.exports.anonymous import anonymous_copy
    from spec_compare.figures.outcome import recompute_outcome
    from spec_compare.records.reading import read_results
    from spec_compare.report import page, svg

    svg.check_matplotlib()
    with anonymous_copy(directory, anonymous) as folder:
        result = recompute_outcome(read_results(folder), level)
    if not result.laps:
        raise UsageError(f"{directory} has no prompt that every contender finished", hint="continue the comparison")
    page.write_report_page(file, result)


@click.command()
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.argument("file", metavar="FILE", type=DIRECTORY)
@click.option("--report/--no-report", default=True, help="With the HTML report; needs the extra [report].")
@click.option("--prompts/--no-prompts", default=True, help="With the prompts, so that others can run it again.")
@ANONYMOUS
def bundle(directory: Path, file: Path, report: bool, prompts: bool, anonymous: bool) -> None:
    """Write results as one zip file with hashes, for a paper to cite: records, summary, prompts, costs and report."""
    from spec_compare.exports import bundle as bundles
    from spec_compare.exports.anonymous import NOTE, anonymous_copy

    with anonymous_copy(directory, anonymous) as folder:
        digest = bundles.write_bundle(folder, file, report, prompts)
    common.print_note(f"written: {file}" if anonymous else f"written: {file}; {NOTE}")
    print_line(f"sha256 {digest}")


@click.command()
@click.argument("directory", metavar="DIR", type=DIRECTORY)
def cite(directory: Path) -> None:
    """Print BibTeX of this software and of the papers that the compared plugins name."""
    from spec_compare.exports.citation import bibtex
    from spec_compare.records.reading import read_results

    print_line(bibtex(read_results(directory).header))


@click.command()
@click.argument("file", metavar="BUNDLE", type=DIRECTORY)
@click.option("--wide", is_flag=True, help="All columns, however wide.")
def check(file: Path, wide: bool) -> None:
    """Verify a bundle, and print its tables, recomputed from its records.

    A bundle that is truncated, that was altered, or whose summary does not follow from its records is refused.
    """
    from spec_compare.exports import bundle as bundles
    from spec_compare.figures import table

    result, digest = bundles.check_bundle(file)
    table.show_outcome(result, wide)
    common.print_note(f"{file}: hashes and figures agree with {result.header.laps} laps of {result.header.date}")
    print_line(f"sha256 {digest}")


@click.command()
@click.argument("directories", metavar="DIR DIR...", nargs=-1, required=True, type=DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="The rows of every machine as one JSON object.")
def merge(directories: tuple[Path, ...], as_json: bool) -> None:
    """Show the same comparison of several machines side by side. Their times are never pooled.

    The prompts, request settings and contenders must be equal.
    """
    from spec_compare.exports import machines

    columns = machines.columns(directories)
    if as_json:
        print_line(common.as_json(machines.body(columns)))
    else:
        machines.show_columns(columns)


@click.command()
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.option("--csv", "csv", type=DIRECTORY, help="Write a row per contender and family to this file.")
@click.option("--parquet", type=DIRECTORY, help="The same as Parquet; needs the extra [parquet].")
@click.option("--latex", type=DIRECTORY, help="Write tables of methods by models and temperatures, with booktabs.")
@click.option("--markdown", type=DIRECTORY, help="The same table as Markdown.")
@click.option("--figures", type=DIRECTORY, help="Write the figures to this directory; needs the extra [report].")
@click.option("--format", "formats", default="svg,pdf", show_default=True, help="Formats of --figures.")
@click.option("--texts", type=DIRECTORY, help="Write a row per text to this CSV file.")
@click.option("--spec-bench", "spec_bench", type=DIRECTORY, help="Write Spec-Bench's answer files to this directory.")
@click.option("--speed-bench", "speed_bench", type=DIRECTORY, help="Write the prompts as rows of SPEED-Bench.")
@click.option("--spec-al", "spec_al", type=DIRECTORY, help="Write the prompts as rows of AIPerf's spec_al_mtbench.")
@click.option("--golden", type=DIRECTORY, help="Write acceptance lengths as InferenceX's YAML to this directory.")
@click.option(
    "--thinking",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="The thinking mode of the prompts, for --golden.",
)
@LEVEL
@ANONYMOUS
def export(
    directory: Path,
    csv: Path | None,
    parquet: Path | None,
    latex: Path | None,
    markdown: Path | None,
    figures: Path | None,
    formats: str,
    texts: Path | None,
    spec_bench: Path | None,
    speed_bench: Path | None,
    spec_al: Path | None,
    golden: Path | None,
    thinking: str,
    level: float | None,
    anonymous: bool,
) -> None:
    """Write results in the formats of other programs."""
    from spec_compare.exports import answers, figure_files, papers, prompt_rows, tables
    from spec_compare.exports import golden as golden_lengths
    from spec_compare.exports.anonymous import NOTE, anonymous_copy
    from spec_compare.figures.outcome import recompute_outcome
    from spec_compare.records.reading import read_results

    writers: dict[Path | None, Callable[[Outcome, Path], list[Path]]] = {
        csv: tables.csv,
        parquet: tables.parquet,
        latex: papers.latex,
        markdown: papers.markdown,
        figures: partial(figure_files.write_figures, formats=formats.split(",")),
        texts: tables.texts,
        spec_bench: answers.write_answers,
        speed_bench: prompt_rows.speed_bench,
        spec_al: prompt_rows.spec_al,
        golden: partial(golden_lengths.write_golden, thinking=thinking),
    }
    chosen_writers = {path: write for path, write in writers.items() if path is not None}
    if not chosen_writers:
        raise UsageError(
            "no format was named", hint="pass one, such as --csv FILE; spec compare export --help lists them"
        )
    with anonymous_copy(directory, anonymous) as folder:
        result = recompute_outcome(read_results(folder), level)
    for path, write in chosen_writers.items():
        note = f"; {NOTE}" if write is papers.latex and not anonymous else ""
        for file in write(result, path):
            common.print_note(f"written: {file}{note}")


COMMANDS = (show, merge, export, report, bundle, check, cite)
"""The commands on results, in the order of the help."""
