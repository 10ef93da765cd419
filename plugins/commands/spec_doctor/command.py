"""``spec doctor``: what a draft head is, how its file has to be read, and what it would gain here."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from spec_commands import common, prompts
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_costs.gains import Gain

    from spec_core import Target
    from spec_core.commands import Settings

TOKENS, LONGEST, SECONDS = 32, 8, 4.0
"""Tokens of a text; the longest draft; time for measuring costs."""


@click.command(cls=Command)
@click.argument("head")
@common.options(common.MODEL)
@click.option("--prompts", "file", type=click.Path(path_type=Path), help="A JSONL file of texts; the default is ten.")
@click.option("--fix", type=click.Path(path_type=Path), help="Write the head with a corrected config.json here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(head: str, file: Path | None, fix: Path | None, as_json: bool, **flags: Any) -> int:
    """Read the draft head HEAD for a model in every way that its file allows, and say what is wrong with it.

    Shows the dialect, repairs, acceptance by position in each reading, what a drafted token costs on this machine, and
    the speedup. Exit code 1 if another reading than the dialect's is the right one.
    """
    from spec_commands.tables import show_table

    from spec_doctor.diagnosis import diagnose_head
    from spec_doctor.fix import write_fixed
    from spec_doctor.report import as_object, last_lines, table_of

    settings = common.settings_of(flags)
    opened, target = open_pair(head, settings)
    common.print_note(f"{opened.info.name}: {opened.head.description}")
    texts = texts_of(file)
    longest = min(LONGEST, (opened.head.block or LONGEST + 1) - 1)
    diagnosis = diagnose_head(target, opened, texts, longest, TOKENS)
    gain = measure_gain(target, opened, diagnosis)
    if fix is not None:
        reading = diagnosis.best.reading
        write_fixed(Path(opened.info.file or head), fix, {} if reading is None else reading.changes)
        common.print_note(f"{fix}: read with --method {opened.head.kind}={fix}")
    if as_json:
        print_line(common.as_json(as_object(opened, target, diagnosis, gain)))
    else:
        show_table(table_of(diagnosis), title=f"{opened.info.name} for {target.info.name}")
        print_line("\n".join(last_lines(diagnosis, gain)))
    return int(diagnosis.cause is not None)


def open_pair(head: str, settings: Settings) -> tuple[Any, Target]:
    """The head, as it is read for the model, and the model. Raises UsageError for a head that does not fit."""
    from spec_core import load

    opened: Any = load(head, weights=False)
    if not hasattr(opened, "readings"):
        raise UsageError(f"{head} is no draft head", hint="pass the file of a head, and its model with -m")
    described = common.describe_model(settings)
    if problem := opened.misfit(described.target):
        raise UsageError(problem[0], hint=problem[1])
    if not opened.readings(described.target):
        hint = f"measure it: spec compare -m MODEL --method {opened.head.kind}={head}"
        raise UsageError(f"{head}: a head of kind {opened.head.kind} has one reading", hint=hint)
    return opened.fit_to(described.target), common.load_target(described)


def texts_of(file: Path | None) -> list[Any]:
    """The texts of a file, or the built-in ones. Raises UsageError."""
    from spec_doctor.texts import TEXTS

    return list(TEXTS) if file is None else [prompt.given for prompt in prompts.read_prompt_file(file)]


def measure_gain(target: Target, opened: Any, diagnosis: Any) -> Gain | None:
    """What the head costs and gains in its best reading."""
    from spec_costs.gains import LONGEST, gain_of, measure_costs

    from spec_doctor.acceptance import make_method

    best = diagnosis.best
    read = opened if best.reading is None else opened.read_as(best.reading.changes)
    costs = measure_costs(target, [(read.head.kind, make_method(read, LONGEST))], perf_counter() + SECONDS)
    return gain_of(costs, read.head.kind, diagnosis.whole.conditional)
