"""Runs the comparison of a bundle again: its settings, contenders and prompts, and whether the texts are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from spec_commands.common import Settings, print_note

from spec_compare.exports import bundle
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.overlap import interval_text, intervals_overlap
from spec_compare.figures.served import has_servers
from spec_compare.figures.summary import ALL, INTERVAL_PROMPTS, Row
from spec_compare.inputs import sources
from spec_compare.inputs.sources import PromptSource
from spec_compare.measuring.comparison import run_experiment
from spec_compare.measuring.entries import CONTENDER, SWEEP, TARGET, ContenderEntry, override_settings
from spec_compare.measuring.experiment import Experiment
from spec_compare.records.continuation import changes
from spec_compare.records.header import ContenderFacts, Header
from spec_compare.records.prompts import prompts_sha256
from spec_compare.records.record import ORACLE, Lap
from spec_core import Target
from spec_core.commands import DEFAULT, name_of, resolve_layers, setting_owners
from spec_core.errors import UsageError

OWN = (CONTENDER, SWEEP, TARGET)
"""Origins of settings that a contender has for itself."""
SHOWN = 5
"""Max texts and changes that are listed."""
MOVABLE = ("model", "device", "dtype", "threads", "context")
"""Settings that may differ from the bundle's."""


@attrs.frozen
class Agreement:
    """How the texts of a comparison compare with the bundle's. differing: contender and prompt."""

    equal: int
    texts: int
    differing: list[str]


def run_again(
    file: Path, changed: Mapping[str, Any], prompts: Path | None, accounts: Mapping[str, Any], out: Path | None
) -> tuple[Outcome, Outcome, Agreement]:
    """The outcome of the bundle, the one measured now, and whether their texts agree. Raises UsageError.

    changed: settings of MOVABLE. prompts: a file, for a bundle without them.
    """
    before, _ = bundle.check_bundle(file)
    if has_servers(before.header):
        raise UsageError(
            f"{file} is a comparison of servers, which this command cannot start",
            hint="start them, and pass --url NAME=URL for each",
        )
    what = experiment_of(file, before, changed, prompts, accounts)
    now = run_experiment(what, out, check=lambda header: _note_changes(file, before.header, header))
    return before, now, agreement(before.laps, now.laps)


def experiment_of(
    file: Path, before: Outcome, changed: Mapping[str, Any], prompts: Path | None, accounts: Mapping[str, Any]
) -> Experiment:
    """The experiment that a bundle's header describes.

    accounts: their ``bounds`` may be None, for a measurement of costs if the bundle has some.
    """
    header = before.header
    settings = settings_of(header, changed)
    oracles = [facts for facts in header.contenders if facts.methods == [ORACLE]]
    entered = [entry_of(facts, header, settings) for facts in header.contenders if facts not in oracles]
    sizes = {
        "repeats": header.repeats,
        "batch": header.batch,
        "reuse_turns": header.reuse_turns,
        "trace": accounts["trace"] or header.trace,
        "prompt_tokens": header.prompts.max_tokens,
    }
    lengths = dict.fromkeys(facts.settings[f"{ORACLE}.length"].value for facts in oracles)
    source = prompts_of(file, before, prompts)

    def choose(targets: Iterable[Target]) -> PromptSource:
        return source

    bounds = bool(before.costs) if accounts["bounds"] is None else accounts["bounds"]
    return Experiment(settings, entered, choose, sizes, {**accounts, "bounds": bounds, "oracles": tuple(lengths)})


def settings_of(header: Header, changed: Mapping[str, Any]) -> Settings:
    """The settings of the bundle's command, with others for this machine."""
    known = {name: s.value for name, s in header.settings.items() if s.origin != DEFAULT and s.value is not None}
    return resolve_layers({**known, **changed}, {}, {}, setting_owners())


def entry_of(facts: ContenderFacts, header: Header, settings: Settings) -> ContenderEntry:
    """The contender under its name in the bundle."""
    return ContenderEntry(settings_of_contender(facts, header, settings), facts.methods, facts.name)


def settings_of_contender(facts: ContenderFacts, header: Header, settings: Settings) -> Settings:
    """The settings and the settings of this contender alone. Settings of its methods are a part of their names."""
    methods = set(map(name_of, facts.methods))
    own = {
        name: setting.value
        for name, setting in facts.settings.items()
        if setting.origin in OWN and name != "methods" and name.rpartition(".")[0] not in methods
    }
    if own.get("model") == header.settings["model"].value:
        own.pop("model", None)
    return override_settings(settings, {name: value for name, value in own.items() if value is not None}, CONTENDER)


def prompts_of(file: Path, before: Outcome, user_file: Path | None) -> PromptSource:
    """The prompts of the bundle, or the user's if they are the same. Raises UsageError."""
    facts = before.header.prompts
    if user_file is None:
        if not before.prompts:
            raise UsageError(f"{file} has no prompts", hint=f"pass {facts.source} with --prompts FILE")
        return PromptSource(facts.source, before.prompts, facts.max_tokens)
    used = {record.prompt for lap in before.laps for record in lap.records}
    prompts = [prompt for prompt in sources.source(user_file, chat=False).prompts if prompt.id in used]
    if prompts_sha256(prompts) != facts.sha256:
        raise UsageError(
            f"{user_file} has other prompts than {file}: {len(prompts)} of {len(used)} ids are there",
            hint=f"pass the file that was used, {facts.source}",
        )
    return PromptSource(facts.source, prompts, facts.max_tokens)


def _note_changes(file: Path, before: Header, now: Header) -> None:
    """Note what differs from the machine and the programs of the bundle."""
    changed = changes(before, now)
    for change in changed[:SHOWN]:
        print_note(f"other than in {file}: {change}")
    if len(changed) > SHOWN:
        print_note(f"other than in {file}: {len(changed) - SHOWN} more")


def agreement(before: list[Lap], now: list[Lap]) -> Agreement:
    """Compare every text of the bundle with the one of now."""
    old, new = tokens_by_text(before), tokens_by_text(now)
    differing = [key for key, tokens in old.items() if new.get(key) != tokens]
    names = [f"{contender} on {prompt}" for contender, prompt in dict.fromkeys(key[:2] for key in differing)]
    return Agreement(len(old) - len(differing), len(old), names)


def tokens_by_text(laps: Iterable[Lap]) -> dict[tuple[str, str, int, int], list[int]]:
    """{(contender, prompt, turn, repeat): its tokens}."""
    return {(r.contender, r.prompt, r.turn, r.repeat): r.content for lap in laps for r in lap.records}


def statement(file: Path, before: Outcome, now: Outcome, agreement: Agreement) -> list[str]:
    """Lines on the texts and the speedups of both."""
    lines = [f"{agreement.equal} of {agreement.texts} texts equal those in {file}, measured {before.header.date}"]
    lines += [f"another text: {name}" for name in agreement.differing[:SHOWN]]
    if len(agreement.differing) > SHOWN:
        lines.append(f"another text: {len(agreement.differing) - SHOWN} more")
    return lines + list(_speedups(before, now))


def _speedups(before: Outcome, now: Outcome) -> Iterator[str]:
    """A line per contender that has a speedup in both; plain decoding's is always 1."""
    old = {row.contender: row for row in before.rows if row.family == ALL}
    for row in (row for row in now.rows if row.family == ALL and now.baselines[row.contender] != row.contender):
        was = old.get(row.contender)
        if row.speedup is not None and was is not None and was.speedup is not None:
            there, here = _with_interval(was), _with_interval(row)
            yield f"{row.contender}: speedup {there} in the bundle, {here} now{_overlap(was, row)}"


def _with_interval(row: Row) -> str:
    return f"{row.speedup:.2f}" if row.low is None else f"{row.speedup:.2f} ({interval_text(row)})"


def _overlap(was: Row, row: Row) -> str:
    overlap = intervals_overlap([was, row])
    if overlap is None:
        return f"; intervals need {INTERVAL_PROMPTS} prompts"
    return "; the intervals overlap" if overlap else "; the intervals do not overlap"
