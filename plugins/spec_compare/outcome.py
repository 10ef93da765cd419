"""What a comparison found: rows, differences and warnings, from its laps and its header alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from spec_cli.machine import Load
from spec_cli.timing_warnings import TimingWarning

from spec_compare import summary, timing_warnings
from spec_compare.difference import Difference
from spec_compare.load import load_of
from spec_compare.records.header import Header
from spec_compare.records.reading import Comparison
from spec_compare.records.record import Lap
from spec_compare.summary import Row


@attrs.frozen(eq=False)
class Outcome:
    """The result of a comparison, finished or not."""

    header: Header
    laps: list[Lap]
    rows: list[Row]
    differences: list[Difference]
    warnings: list[TimingWarning]
    load: Load

    def body(self) -> dict[str, Any]:
        """The object of ``summary.json`` and ``--json``."""
        return {
            "rows": [attrs.asdict(r) for r in self.rows],
            "differences": [attrs.asdict(d) for d in self.differences],
            "warnings": [attrs.asdict(c) for c in self.warnings],
            "load": attrs.asdict(self.load),
            **circumstances(self.header),
        }


def outcome(header: Header, laps: list[Lap], labels: Mapping[str, str], differences: list[Difference]) -> Outcome:
    """Rows and warnings of these laps."""
    rows = summary.rows(laps, labels)
    load = load_of(laps, header.processors, header.load_average)
    warnings = timing_warnings.found_in(laps, rows, load, header.targets[0].device)
    return Outcome(header, laps, rows, differences, warnings, load)


def recomputed(comparison: Comparison) -> Outcome:
    """The outcome of recorded results. Scores of differing tokens are not in the records: their gap is None."""
    from spec_compare.difference import recorded

    whole = whole_groups(comparison.laps)
    differing = recorded(whole, comparison.labels)
    return outcome(comparison.header, whole, comparison.labels, differing)


def whole_groups(laps: list[Lap]) -> list[Lap]:
    """The laps of prompts and repeats that every contender has finished: an interrupted comparison has others too."""
    names = {lap.contender for lap in laps}
    there: dict[tuple[int, tuple[str, ...]], set[str]] = {}
    for lap in laps:
        there.setdefault(work(lap), set()).add(lap.contender)
    return [lap for lap in laps if there[work(lap)] == names]


def work(lap: Lap) -> tuple[int, tuple[str, ...]]:
    """What all contenders do in their own lap: repeat and prompts."""
    return lap.repeat, tuple(dict.fromkeys(record.prompt for record in lap.records))


def circumstances(header: Header) -> dict[str, Any]:
    """Facts that a measurement depends on, written beside it."""
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
        "environment": header.environment,
        "settings": {name: attrs.asdict(setting) for name, setting in header.settings.items()},
    }
