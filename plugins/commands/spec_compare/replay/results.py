"""All replays of a comparison, and their table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
from spec_commands.common import print_note
from spec_commands.tables import Cells, show_table

from spec_compare.records.header import ContenderFacts, Header
from spec_compare.records.reading import Comparison
from spec_compare.records.record import Lap
from spec_compare.replay import policies
from spec_compare.replay.play import Player, Replayed
from spec_compare.replay.policies import Longest, MinChance, Policy
from spec_compare.replay.recorded import AGAIN, RecordedStep, steps_of
from spec_compare.replay.times import step_times
from spec_core.errors import UsageError, nearest_names


@attrs.frozen
class Row:
    """One policy on the traces of one contender.

    policy: a controller, a rule, or ``as recorded``. choices, same, censored: as in ``Replayed``; same is None for a
    policy that the contender was not recorded with. tokens_per_step: emitted; drafted_per_step: drafted.
    speedup: over plain decoding, from the median times of recorded steps; None without a step that generates.
    """

    contender: str
    policy: str
    choices: int
    same: int | None
    censored: int
    drafted_per_step: float | None
    tokens_per_step: float | None
    speedup: float | None


@attrs.define(eq=False)
class _Nobody:
    """Changes nothing: the draft as it was recorded."""


def replay_results(
    comparison: Comparison,
    controls: tuple[str, ...],
    lengths: tuple[int, ...],
    chances: tuple[float, ...],
    contenders: tuple[str, ...],
) -> list[Row]:
    """A row for every contender that drafts, and every policy. Raises UsageError for results without traces."""
    if not comparison.header.trace:
        raise UsageError(f"{comparison.folder} has no traces", hint=AGAIN)
    if comparison.sessions:
        print_note("the comparison was interrupted: a controller may have measured other times than those recorded")
    rows: list[Row] = []
    for facts in choose_contenders(comparison.header, contenders):
        runs = _runs(comparison.laps, facts.name)
        plain = [step for run in _runs(comparison.laps, facts.baseline) for step in run]
        for make in _policies(facts, controls, lengths, chances):
            rows.append(_row(comparison.header, facts, make, runs, plain))
    return rows


def choose_contenders(header: Header, names: tuple[str, ...]) -> list[ContenderFacts]:
    """The contenders that draft; of these the named ones. Raises UsageError for a name that none has."""
    there = {c.name: c for c in header.contenders if any(c.proposals.values())}
    for name in names:
        if name not in there:
            raise UsageError(f"no contender named {name!r} drafts", hint=f"there are: {nearest_names(name, there)}")
    return [c for name, c in there.items() if not names or name in names]


def _runs(laps: list[Lap], contender: str) -> list[list[RecordedStep]]:
    """The steps of each repeat: every repeat is a run of its own."""
    own_laps = [lap for lap in laps if lap.contender == contender]
    repeats = sorted({lap.repeat for lap in own_laps})
    return [
        steps_of(sorted((lap for lap in own_laps if lap.repeat == repeat), key=lambda lap: lap.number))
        for repeat in repeats
    ]


Maker = Callable[[], Policy]
"""Every run has a new policy."""


def _policies(
    facts: ContenderFacts, controls: tuple[str, ...], lengths: tuple[int, ...], chances: tuple[float, ...]
) -> Iterator[Maker]:
    if policies.recorded_policy(facts) is not None:
        yield partial(policies.recorded_policy, facts)
    else:
        yield partial(Policy, "as recorded", _Nobody(), recorded=True)
    for spec in controls:
        yield partial(policies.controller, spec)
    for length in lengths:
        yield partial(Policy, f"length {length}", Longest(length))
    for chance in chances:
        yield partial(Policy, f"min chance {chance:g}", MinChance(chance))


def _row(
    header: Header, facts: ContenderFacts, make: Maker, runs: list[list[RecordedStep]], plain: list[RecordedStep]
) -> Row:
    target = policies.target_of(header.targets[facts.target])
    times = step_times([step for run in runs for step in run], plain)
    proposals = {name: frozenset(kinds) for name, kinds in facts.proposals.items()}
    result, policy = Replayed(), make()
    for run in runs:
        policy = policies.load_policy(make(), target)
        Player(policy, target, proposals, times, result).play(run)
    draft_statistics = result.draft_statistics
    return Row(
        contender=facts.name,
        policy=policy.name,
        choices=result.choices,
        same=result.same if policy.recorded else None,
        censored=result.censored,
        drafted_per_step=draft_statistics.drafted / draft_statistics.steps if draft_statistics.steps else None,
        tokens_per_step=draft_statistics.emitted / draft_statistics.steps if draft_statistics.steps else None,
        speedup=result.plain_seconds / result.seconds if result.seconds else None,
    )


def body(rows: list[Row]) -> dict[str, Any]:
    """The object of ``--json``."""
    return {"rows": [attrs.asdict(row) for row in rows]}


TITLES = ("policy", "choices", "same", "censored", "drafted/step", "tokens/step", "speedup")


def show_rows(rows: list[Row]) -> None:
    """Print a table per contender."""
    for name in dict.fromkeys(row.contender for row in rows):
        own_rows = [_cells(row) for row in rows if row.contender == name]
        show_table(Cells(TITLES, own_rows, {"policy"}), title=name)


def _cells(row: Row) -> list[str]:
    counts = [str(row.choices), "" if row.same is None else str(row.same), str(row.censored)]
    figures = [row.drafted_per_step, row.tokens_per_step, row.speedup]
    return [row.policy, *counts, *("" if value is None else f"{value:.2f}" for value in figures)]
