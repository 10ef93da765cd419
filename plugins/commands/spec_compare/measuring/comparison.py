"""Runs a comparison from its settings: everything that can be refused is refused before the first measurement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import attrs
from spec_commands import common
from spec_commands.common import Settings

from spec_compare.figures.outcome import Outcome, outcome
from spec_compare.inputs.sized import EXTENSION
from spec_compare.inputs.sources import PromptSource
from spec_compare.measuring import calibration, collect, contenders, difference, exactness, experiment, oracle
from spec_compare.measuring.calibration import Calibration
from spec_compare.measuring.contenders import ContenderPlan
from spec_compare.measuring.experiment import Experiment
from spec_compare.measuring.measure import Baseline, RequestSettings, measure_laps, warm_up
from spec_compare.measuring.progress import progress
from spec_compare.measuring.shard import ALL_WORK, Shard
from spec_compare.records import costs as recorded_costs
from spec_compare.records.continuation import threads
from spec_compare.records.header import Header
from spec_compare.records.reading import Comparison
from spec_compare.records.record import Lap
from spec_compare.records.writing import Results, Written, ignore_line
from spec_core import Target

Checked = Callable[[Header], None]
"""Called with the header before anything is measured."""
Measured = Callable[[Collection[int], Callable[[Lap], None]], Iterator[Lap]]
"""Laps that are not among the numbers of finished ones; the function is called after each."""


def run_comparison(
    out: Path | None, flags: dict[str, Any], shard: Shard = ALL_WORK, written: Written = ignore_line
) -> Outcome:
    """The comparison, or a part of it; with ``out`` it is written there, and continued if it was interrupted.

    written: called with the lines of the results.
    """
    return run_experiment(experiment.from_flags(flags, shard), out, written)


def run_experiment(
    experiment: Experiment, out: Path | None, written: Written = ignore_line, check: Checked | None = None
) -> Outcome:
    """The outcome of an experiment. check: with it, files are hashed even if nothing is written."""
    settings, accounts = experiment.settings, experiment.accounts
    results = None if out is None else Results(out, written)
    before = None if results is None else results.before
    targets = contenders.check_contenders(
        settings,
        experiment.entered,
        None if before is None else recorded_threads(before),
        max(experiment.lengths, default=0),
    )
    source = experiment.choose(targets.values())
    entrants, request_settings = prepare_entrants(experiment, targets, source)
    if experiment.lengths:
        common.print_note(f"prompts of {', '.join(map(str, experiment.lengths))} tokens: {EXTENSION}")
    facts = collect.facts_of(source.prompts, source.name, request_settings.prompt_tokens)
    header, rows = prepare_runs(entrants, settings, facts, hashed=out is not None or check is not None)
    if check is not None:
        check(header)
    if results is not None:
        results.begin(header, None if accounts["no_prompts"] else source.prompts)
        header = header if before is None else before.header  # its date and load are the first part's
    setups = {e.contender.baseline: e.contender.setup for e in entrants}
    with closing(measure_costs(setups, rows, accounts, before)) as costs:
        costs.begin()
        calibration.announce_costs(costs.costs(), settings["draft_max"], request_settings.batch)
        laps = run_all(entrants, header, results, costs)
    labels = {c.name: c.label for c in header.contenders if c.label is not None}
    differing = difference.differences(laps, labels, setups)
    if accounts["exact"]:
        differing = exactness.explain_differences(differing, laps, setups)
    result = outcome(header, laps, labels, differing, costs.costs())
    result = attrs.evolve(result, sessions=[] if results is None else results.sessions, prompts=source.prompts)
    if results is not None:
        recorded_costs.write_costs(results.out, result.costs)
        results.conclude(result.body())
    return result


def prepare_entrants(
    experiment: Experiment, targets: dict[Hashable, Target], source: PromptSource
) -> tuple[list[ContenderPlan], RequestSettings]:
    """The contenders with their prompts, oracles last, and the request settings of the command."""
    settings = experiment.settings
    sizes = experiment.sizes | {"prompt_tokens": experiment.sizes["prompt_tokens"] or source.max_tokens}
    request_settings = RequestSettings(settings["max_tokens"], common.sampling_of(settings), settings["seed"], **sizes)
    entrants = contenders.entrants(settings, experiment.entered, targets, source.prompts, request_settings)
    return entrants + oracle.entrants(entrants, experiment.accounts["oracles"]), request_settings


def measure_costs(
    setups: Mapping[str, Baseline], rows: Mapping[str, int], accounts: Mapping[str, Any], before: Comparison | None
) -> Calibration:
    """Costs of steps for the bounds. A complete comparison's are not measured again."""
    if not accounts["bounds"]:
        return Calibration()
    if before is not None and before.complete:
        return Calibration(recorded_costs.read_costs(before.folder) or {})
    if accounts["costs"] is not None:
        return calibration.from_file(accounts["costs"], setups)
    return calibration.planned_calibration(setups, rows)


def recorded_threads(before: Comparison) -> int:
    """The number of CPU threads of the run that was interrupted: a measured choice might be another one now."""
    number = threads(before.header.targets[0])
    return int(number) if number is not None and number.isdigit() else 0


def prepare_runs(
    entrants: list[ContenderPlan], settings: Settings, facts: collect.PromptFacts, hashed: bool
) -> tuple[Header, dict[str, int]]:
    """Make every run once, so that refusals come before measurements, and warm it up.

    Returns the header, and for each baseline the rows of the largest draft.
    """
    with ExitStack() as stack:
        runs = {e.contender.name: stack.enter_context(e.contender.make()) for e in entrants}
        common.note_owners(runs.values(), settings)
        for contender in (e.contender for e in entrants):
            setup = contender.setup
            warm_up(contender.name, runs[contender.name], setup.prompts, setup.request_settings)
        labels = contenders.labels(runs, entrants)
        header = collect.header(entrants, runs, labels, facts, settings, hashed)
        return header, calibration.widths(entrants, runs)


def run_all(
    entrants: list[ContenderPlan], header: Header, results: Results | None, calibration: Calibration
) -> list[Lap]:
    """Run all laps; laps of an interrupted run are taken from its results.

    costs: its measurement continues between the laps.
    """
    _announce(entrants, header, [] if results is None else results.laps)

    def laps(done: Collection[int], on_lap: Callable[[Lap], None]) -> Iterator[Lap]:
        for lap in measure_laps([e.contender for e in entrants], header.repeats, done, on_lap):
            yield lap
            calibration.after(lap.seconds)

    return record_laps(laps, header, results)


def record_laps(measured: Measured, header: Header, results: Results | None) -> list[Lap]:
    """The laps of an interrupted run and further ones, each written before the next is measured."""
    finished = [] if results is None else results.laps
    laps = list(finished)
    if len(finished) == header.laps:
        return laps
    labels = [c.name for c in header.contenders if c.label is not None]
    with progress(header.laps, finished, labels) as on_lap:
        try:
            for lap in measured({lap.number for lap in finished}, on_lap):
                if results is not None:
                    results.add(lap)
                laps.append(lap)
            return laps
        except KeyboardInterrupt:
            interruption = _describe_interruption(len(laps), header.laps, results)
    common.print_note(interruption)
    raise KeyboardInterrupt


def _describe_interruption(done: int, total: int, results: Results | None) -> str:
    """What was measured until Ctrl-C, and what becomes of it."""
    if results is None:
        return f"interrupted: {done} of {total} laps were measured, none is kept; --out DIR keeps and continues them"
    kept = f"interrupted: {done} of {total} laps are in {results.out}; the same command continues after them"
    return f"{kept}, and spec compare show {results.out} prints what is finished"


def _announce(entrants: list[ContenderPlan], header: Header, finished: list[Lap]) -> None:
    setup = entrants[0].contender.setup
    lengths = sorted({entrant.contender.setup.request_settings.max_tokens for entrant in entrants})
    tokens = " or ".join(map(str, lengths))
    what = f"{len(setup.prompts)} prompts, {len(entrants)} contenders, at most {tokens} tokens each"
    common.print_note(f"{setup.target.info.name}: {what}")
    if kernels := setup.target.info.kernels:
        common.print_note(f"kernels: {kernels}")
    if finished:
        common.print_note(f"{len(finished)} of {header.laps} laps are recorded; continuing after them")
