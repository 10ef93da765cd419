"""How often drafted tokens were accepted, by the chance that their method gave them, from traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import Row
from spec_compare.records.record import Record
from spec_compare.report import svg
from spec_compare.report.figure import Figure, facet_panels, figure_of, number
from spec_compare.report.looks import contender_looks, keys_of
from spec_compare.report.points import records_of

BINS = 10
"""Bins of equal width for chances from 0 to 1."""
LAST = 4
"""The position from which on all share a panel; earlier ones have their own."""


@attrs.define
class Bin:
    """Tested tokens with similar chances. expected: sum of their chances."""

    tests: int = 0
    accepted: int = 0
    expected: float = 0.0


Bins = dict[tuple[int, int], Bin]
"""By position in the draft, from 1 on, and number of the bin."""


def decided_tokens(record: Record) -> Iterator[tuple[int, float, bool]]:
    """(position, chance, whether it was accepted) of the tokens whose whole path before them was accepted."""
    trace = record.trace
    if trace is None:
        return
    for chances, parents, path in zip(trace.confidence, trace.parents, trace.uncut, strict=True):
        kept, depths = {-1, *path}, {-1: 0}
        for i, chance in enumerate(chances or ()):
            parent = i - 1 if parents is None else parents[i]
            depths[i] = depths[parent] + 1
            if parent in kept:
                yield depths[i], chance, i in kept


def count_bins(records: Iterable[Record]) -> Bins:
    """Counts of tested tokens by position and bin."""
    bins: Bins = defaultdict(Bin)
    for record in records:
        for position, chance, accepted in decided_tokens(record):
            one = bins[position, min(int(chance * BINS), BINS - 1)]
            one.tests, one.accepted, one.expected = one.tests + 1, one.accepted + accepted, one.expected + chance
    return dict(sorted(bins.items()))


def curve(bins: Bins, panel: int) -> tuple[list[float], list[float]]:
    """Mean chances, and shares accepted, of the bins of a position, or of ``LAST`` and all later ones together."""
    joined: dict[int, Bin] = defaultdict(Bin)
    for (position, index), one in bins.items():
        if min(position, LAST) == panel:
            both = joined[index]
            both.tests, both.accepted = both.tests + one.tests, both.accepted + one.accepted
            both.expected += one.expected
    filled = [joined[index] for index in sorted(joined)]
    return [one.expected / one.tests for one in filled], [one.accepted / one.tests for one in filled]


def reliability(outcome: Outcome, rows: Sequence[Row]) -> Figure | None:
    """Figure of the shares accepted over the chances that methods gave; None where no trace has any."""
    counts = {row.contender: bins for row in rows if (bins := count_bins(records_of(outcome, row.contender)))}
    if not counts:
        return None
    panels = facet_panels(outcome, [row for row in rows if row.contender in counts])
    drawings = [
        (panel.title, _drawing(outcome, {r.contender: counts[r.contender] for r in panel.rows})) for panel in panels
    ]
    cells = [
        [name, str(position), number(one.expected / one.tests), number(one.accepted / one.tests), str(one.tests)]
        for name, bins in counts.items()
        for (position, _), one in bins.items()
    ]
    about = "On the diagonal, tokens are accepted as often as their method expects; below it, less often."
    heads = ["contender", "position", "expected", "accepted", "tests"]
    legend = keys_of(outcome, counts)
    return figure_of("reliability", "Confidence and acceptance", about, drawings, heads, cells, legend)


def _drawing(outcome: Outcome, counts: Mapping[str, Bins]) -> Any:
    own_looks = contender_looks(outcome)
    with svg.axes(2, 1.8 * svg.HEIGHT, 2) as ((first, second), (third, later)):
        for position, ax in enumerate((first, second, third, later), 1):
            for name, bins in counts.items():
                ax.plot(*curve(bins, position), markersize=4, **own_looks[name].options)
            ax.plot([0, 1], [0, 1], color=svg.FAINT)
            ax.set_title(f"position {position}{' and later' * (position == LAST)}", fontsize=11)
            ax.set_xticks([0, 0.5, 1])
            ax.set_xlim(0, 1)
            ax.set_ylim(0, 1.05)
        for ax in (second, later):
            ax.set_yticklabels([])
        first.figure.supxlabel("chance given by the method", fontsize=11)
        first.figure.supylabel("accepted", fontsize=11)
        return first.figure
