"""Outcome of a comparison: rows, differences and warnings, from its laps and its header alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from spec_commands.machine import Load
from spec_commands.prompts import Prompt
from spec_commands.timing_warnings import TimingWarning
from spec_costs.file import Costs
from spec_costs.limits import Limits, limits

from spec_compare.figures import summary, timing_warnings
from spec_compare.figures.difference import Difference
from spec_compare.figures.equality import EqualityRow, equality
from spec_compare.figures.lengths import LengthRow, length_rows
from spec_compare.figures.load import load_of
from spec_compare.figures.pairs import Pair, pairs
from spec_compare.figures.routing import RoutingBound, routing_bounds
from spec_compare.figures.served import server_warnings, unknown_facts
from spec_compare.figures.summary import Row
from spec_compare.records import costs as recorded_costs
from spec_compare.records import prompts as recorded_prompts
from spec_compare.records.header import ContenderFacts, Header, Session
from spec_compare.records.reading import Comparison
from spec_compare.records.record import ORACLE, Lap


@attrs.frozen(eq=False)
class Outcome:
    """The result of a comparison, finished or not."""

    header: Header
    laps: list[Lap]
    rows: list[Row]
    differences: list[Difference]
    warnings: list[TimingWarning]
    load: Load
    costs: Mapping[str, Costs] = attrs.field(factory=dict)
    sessions: list[Session] = attrs.field(factory=list)
    """Continuations after interruptions."""
    prompts: list[Prompt] = attrs.field(factory=list)
    """Prompts of the comparison, empty if they were not stored."""
    pairs: list[Pair] = attrs.field(factory=list)
    """Comparisons of methods with each other."""
    routing: list[RoutingBound] = attrs.field(factory=list)
    """Bounds over methods, by plain decoding."""
    equality: list[EqualityRow] = attrs.field(factory=list)
    """Rows by type of numbers, if there are several."""
    unknown: list[str] = attrs.field(factory=list)
    """What cannot be known of servers."""
    lengths: list[LengthRow] = attrs.field(factory=list)
    """Rows by length of prompts, with ``--lengths``."""

    @property
    def baselines(self) -> dict[str, str]:
        """{contender: the plain decoding it is compared with}."""
        return {c.name: c.baseline for c in self.header.contenders}

    def body(self) -> dict[str, Any]:
        """The object of ``summary.json`` and ``--json``."""
        return {
            "rows": [attrs.asdict(r) for r in self.rows],
            "pairs": [attrs.asdict(p) for p in self.pairs],
            "routing": [attrs.asdict(one) for one in self.routing],
            "equality": [attrs.asdict(one) for one in self.equality],
            "differences": [attrs.asdict(d) for d in self.differences],
            "unknown": self.unknown,
            "lengths": [attrs.asdict(one) for one in self.lengths],
            "warnings": [attrs.asdict(c) for c in self.warnings],
            "load": attrs.asdict(self.load),
            "limits": [attrs.asdict(one) for one in limits_of_costs(self.header, self.costs)],
            **circumstances(self.header),
        }


def outcome(
    header: Header,
    laps: list[Lap],
    labels: Mapping[str, str],
    differences: list[Difference],
    costs: Mapping[str, Costs] | None = None,
) -> Outcome:
    """Rows and warnings of these laps. costs: of the steps of each baseline, for the bounds."""
    costs = costs or {}
    rows = summary.rows(laps, labels, curves(header, costs), header.interval)
    load = load_of(laps, header.processors, header.load_average)
    warnings = timing_warnings.found_in(laps, rows, load, header.targets[0].device) + server_warnings(laps)
    result = Outcome(header, laps, rows, differences, warnings, load, costs)
    compared = pairs(laps, rows, result.baselines, header.interval)
    return attrs.evolve(
        result,
        pairs=compared,
        routing=routing_bounds(laps, {c.name: c.baseline for c in header.contenders if c.methods != [ORACLE]}),
        equality=equality(header, laps, rows, differences),
        unknown=unknown_facts(header, laps),
        lengths=length_rows(laps, labels, header.prompts.lengths, header.interval),
    )


def curves(header: Header, costs: Mapping[str, Costs]) -> summary.Costs:
    """Cost curves and longest draft of every contender whose baseline has costs."""
    known = {name: own_costs.curves(header.batch) for name, own_costs in costs.items()}
    return {c.name: (known[c.baseline], draft_max(c)) for c in header.contenders if c.baseline in known}


def draft_max(contender: ContenderFacts) -> int:
    """The longest draft that its run allows."""
    setting = contender.settings.get("draft_max")
    return setting.value if setting is not None and isinstance(setting.value, int) else 0


def limits_of_costs(header: Header, costs: Mapping[str, Costs]) -> list[Limits]:
    """Limits of a free drafter by the costs, for every baseline and depth."""
    facts = {c.name: draft_max(c) for c in header.contenders}
    return [
        limits(curve, facts.get(name, 0), header.batch, depth, name)
        for name, own_costs in costs.items()
        for depth, curve in own_costs.curves(header.batch).by_depth.items()
    ]


def recompute_outcome(comparison: Comparison, level: float | None = None) -> Outcome:
    """The outcome of recorded results. Scores of differing tokens are not in the records: their gap is None.

    level: of the intervals; None for the recorded one.
    """
    from spec_compare.figures.difference import recorded_differences

    whole = whole_groups(comparison.laps)
    differing = recorded_differences(whole, comparison.labels)
    header, folder = comparison.header, comparison.folder
    header = header if level is None else attrs.evolve(header, interval=level)
    result = outcome(header, whole, comparison.labels, differing, recorded_costs.read_costs(folder))
    return attrs.evolve(result, sessions=comparison.sessions, prompts=recorded_prompts.read_prompts(folder, header))


def whole_groups(laps: list[Lap]) -> list[Lap]:
    """The laps of prompts and repeats that every contender has finished: an interrupted comparison has others too."""
    names = {lap.contender for lap in laps}
    there: dict[tuple[int, tuple[str, ...]], set[str]] = {}
    for lap in laps:
        there.setdefault(work(lap), set()).add(lap.contender)
    return [lap for lap in laps if there[work(lap)] == names]


def work(lap: Lap) -> tuple[int, tuple[str, ...]]:
    """Repeat and prompts of a lap, which are the same for all contenders."""
    return lap.repeat, tuple(dict.fromkeys(record.prompt for record in lap.records))


def circumstances(header: Header) -> dict[str, Any]:
    """Facts that a measurement depends on, written with it."""
    target = header.targets[0]
    return {
        "target": target.name,
        "device": target.device,
        "dtype": target.dtype,
        "exact": target.exact,
        "threads": target.threads,
        "kernels": target.kernels,
        "seed": header.seed,
        "repeats": header.repeats,
        "batch": header.batch,
        "interval": header.interval,
        "environment": header.environment,
        "settings": {name: attrs.asdict(setting) for name, setting in header.settings.items()},
    }
