"""Runs a comparison from its settings: everything that can be refused is refused before the first measurement."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from spec_cli import common
from spec_cli.common import Settings
from spec_cli.prompts import Prompt, read

from spec_compare import contenders, difference, prompts
from spec_compare.contenders import Entrant
from spec_compare.entries import entries
from spec_compare.measure import Terms, measure, warm_up
from spec_compare.outcome import Outcome, outcome
from spec_compare.progress import progress
from spec_compare.records import collect
from spec_compare.records.header import Header
from spec_compare.records.reading import Comparison
from spec_compare.records.record import Lap
from spec_compare.records.same import threads
from spec_compare.records.writing import Results
from spec_core import Target

CHOICE = ("file", "families", "limit", "chat")
SCALE = ("repeats", "batch", "reuse_turns", "trace")


def measured(out: Path | None, flags: dict[str, Any]) -> Outcome:
    """The whole comparison; with ``out`` it is written there, and continued if it was interrupted."""
    choice, scale = common.take(flags, *CHOICE), common.take(flags, *SCALE)
    wanted = common.take(flags, "contenders_file", "sweeps")
    settings = common.settings_of(flags)
    results = None if out is None else Results(out)
    entered = entries(settings, wanted["contenders_file"], wanted["sweeps"])
    before = None if results is None else results.before
    targets = contenders.checked(settings, entered, None if before is None else recorded_threads(before))
    terms = Terms(settings["max_tokens"], common.sampling_of(settings), settings["seed"], **scale)
    chosen, source = chosen_prompts(next(iter(targets.values())), **choice)
    entrants = contenders.entrants(settings, entered, targets, chosen, terms)
    header = prepared(entrants, settings, collect.prompt_facts(chosen, source), hashed=out is not None)
    if results is not None:
        results.begin(header)
    laps = run_all(entrants, header, results)
    labels = {c.name: c.label for c in header.contenders if c.label is not None}
    setups = {e.contender.baseline: e.contender.setup for e in entrants}
    found = outcome(header, laps, labels, difference.differences(laps, labels, setups, chosen))
    if results is not None:
        results.conclude(found.body())
    return found


def recorded_threads(before: Comparison) -> int:
    """The number of CPU threads of the run that was interrupted: a measured choice might be another one now."""
    number = threads(before.header.targets[0])
    return int(number) if number is not None and number.isdigit() else 0


def chosen_prompts(
    target: Target, file: Path | None, families: Iterable[str], limit: int | None, chat: bool
) -> tuple[list[Prompt], str]:
    """The prompts, and where they come from."""
    path = file or prompts.shipped(target)
    return prompts.chosen(read(path, chat), path.name, families, limit), str(path)


def prepared(entrants: list[Entrant], settings: Settings, facts: collect.PromptFacts, hashed: bool) -> Header:
    """Make every run once, so that refusals come before measurements, and warm it up. Returns the header."""
    with ExitStack() as made:
        runs = {e.contender.name: made.enter_context(e.contender.make()) for e in entrants}
        common.note_owners(runs.values(), settings)
        for contender in (e.contender for e in entrants):
            setup = contender.setup
            warm_up(contender.name, runs[contender.name], setup.prompts, setup.terms)
        labels = contenders.labels(runs, entrants)
        return collect.header(entrants, runs, labels, facts, settings, hashed)


def run_all(entrants: list[Entrant], header: Header, results: Results | None) -> list[Lap]:
    """All laps; those of an interrupted run are taken from its results. Each is written before the next is run."""
    finished = [] if results is None else results.laps
    _announce(entrants, header, finished)
    laps = list(finished)
    if len(finished) == header.laps:
        return laps
    labels = [c.name for c in header.contenders if c.label is not None]
    with progress(header.laps, finished, labels) as on_lap:
        done = {lap.number for lap in finished}
        for lap in measure([e.contender for e in entrants], header.repeats, done, on_lap):
            if results is not None:
                results.add(lap)
            laps.append(lap)
    return laps


def _announce(entrants: list[Entrant], header: Header, finished: list[Lap]) -> None:
    setup = entrants[0].contender.setup
    what = f"{len(setup.prompts)} prompts, {len(entrants)} contenders, at most {setup.terms.max_tokens} tokens each"
    common.note(f"{setup.target.info.name}: {what}")
    if said := setup.target.info.extras.get("kernels"):
        common.note(f"kernels: {said}")
    if finished:
        common.note(f"{len(finished)} of {header.laps} laps are recorded; continuing after them")
