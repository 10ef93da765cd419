"""Prints rows as tables: one of at most 80 columns, or with all figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
from spec_commands.printing import print_line
from spec_commands.tables import WIDE, Cells, is_fitting, show_table, terminal_width
from spec_commands.timing_warnings import TimingWarning

from spec_compare.figures.columns import COLUMNS, LEFT, informative_columns, interval_title, title
from spec_compare.figures.difference import Difference
from spec_compare.figures.facets import Facet, facets, short_names
from spec_compare.figures.lengths import length_cells
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.pairs import Pair, pairs_against
from spec_compare.figures.summary import ALL, INTERVAL, Row, worst_first
from spec_compare.figures.timing_warnings import fold_warnings
from spec_compare.figures.titles import cut_middle
from spec_compare.records.record import PLAIN

FAMILY_MAX = 7
"""Max characters of a worst family where the table would not fit the terminal."""
MANY = 8
"""Max contenders whose bounds have a line each."""


def show_rows(
    rows: list[Row],
    differing: Iterable[Difference],
    warnings: Iterable[TimingWarning] = (),
    wide: bool = False,
    batch: int = 1,
    baselines: Mapping[str, str] | None = None,
    level: float = INTERVAL,
    listed: Sequence[Facet] = (),
) -> None:
    """Print a table per family, that of the smallest speedup first and the one over all prompts last.

    Bounds, differences and warnings follow. batch: prompts that ran together. baselines: {contender: the plain
    decoding it is compared with}. level: of the intervals. listed: facets; of several, each is a group of rows.
    """
    families = worst_first(rows)
    for family in families[:-1] if len(families) == 2 else families:
        family_rows = [r for r in rows if r.family == family]
        name = "all families" if family == ALL else family
        names = informative_columns(family_rows, wide, batch)
        width = WIDE if wide else terminal_width()
        cells = cells_of(family_rows, names, batch, level, listed)
        if not is_fitting(cells, width):
            cells = cells_of(cut_worst_families(family_rows), names, batch, level, listed)
        show_table(cells, width, f"{name}, {family_rows[0].prompts} prompts")
    shown_warnings = list(warnings) if wide else fold_warnings(warnings)
    for line in [*readings(rows_over_all(rows), baselines or {}, wide), *map(describe_difference, differing)]:
        print_line(line)
    for warning in shown_warnings:
        print_line(f"warning: {warning.text}")


def cut_worst_families(rows: Iterable[Row], length_max: int = FAMILY_MAX) -> list[Row]:
    """The rows with names of worst families that fit a narrow column."""
    return [
        row if row.worst_family is None else attrs.evolve(row, worst_family=cut_middle(row.worst_family, length_max))
        for row in rows
    ]


def show_outcome(outcome: Outcome, wide: bool, against: str | None = None) -> None:
    """Print the tables of an outcome, with its bounds, differences and warnings.

    against: a contender with which every other one is compared. Raises UsageError for an unknown one.
    """
    header = outcome.header
    if against is not None:
        _show_against(outcome, against)
    show_rows(
        outcome.rows,
        outcome.differences,
        outcome.warnings,
        wide,
        header.batch,
        outcome.baselines,
        header.interval,
        facets(header),
    )
    for bound in outcome.routing:
        print_line(bound.text)
    if outcome.lengths:
        show_table(length_cells(outcome.lengths), title="speedup at tokens per step, by length of the prompts")
    for line in outcome.unknown:
        print_line(f"not known: {line}")
    if outcome.equality:
        show_table(equality_cells(outcome), title="equality by type")


def _show_against(outcome: Outcome, name: str) -> None:
    chosen = pairs_against(outcome.pairs, short_names(outcome.header), name)
    lines = [[pair.contender, f"{pair.ratio:.2f}×", _span(pair), str(pair.prompts)] for pair in chosen]
    heads = ["method", f"× {name}", interval_title(outcome.header.interval), "prompts"]
    show_table(Cells(heads, lines, frozenset({"method"})), title=f"against {name}, all families")


def equality_cells(outcome: Outcome) -> Cells:
    """A line per contender: its types, equal texts, and the earliest difference.

    "as first": texts of plain decoding that equal the first plain decoding's.
    """
    heads = ["method", "dtype", "cache", "equal", "as first", "differs at", "gap"]
    lines = [
        [
            row.contender,
            row.dtype,
            row.cache,
            f"{row.identical} of {row.prompts}",
            "-" if row.like_first is None else str(row.like_first),
            "-" if row.position is None else str(row.position),
            "-" if row.gap is None else f"{row.gap:.2g}",
        ]
        for row in outcome.equality
    ]
    return Cells(heads, lines, frozenset({"method", "dtype", "cache"}))


def _span(pair: Pair) -> str:
    return "" if pair.low is None or pair.high is None else f"{pair.low:.2f}-{pair.high:.2f}"


def readings(rows: list[Row], baselines: Mapping[str, str], wide: bool) -> list[str]:
    """Lines on the bounds of each contender; of many contenders one line, unless ``wide``."""
    lines = [*filter(None, map(speedup_reading, rows))]
    if wide or len(lines) <= MANY:
        return [*lines, *filter(None, (rest_of_step(row, rows, baselines) for row in rows))]
    shares = [row.roof_fraction for row in rows if speedup_reading(row) and row.roof_fraction is not None]
    low, high = min(shares), max(shares)
    return [f"{len(lines)} contenders: {low:.2f} to {high:.2f} of what their acceptance allows; --wide names each"]


def rows_over_all(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.family == ALL]


def speedup_reading(row: Row) -> str:
    """The bounds of a speedup in words; empty for plain decoding, and for a speedup that is not shown."""
    if row.roof_fraction is None or row.acceptance_bound is None or row.hardware_bound is None:
        return ""
    parts = [f"{row.contender}: {row.roof_fraction:.2f} of what its acceptance allows ({row.acceptance_bound:.2f}×)"]
    if row.drafter_bound is not None:
        parts.append(f"with every draft accepted {row.drafter_bound:.2f}×")
    parts.append(f"the machine allows {row.hardware_bound:.2f}× ({row.hardware_drafts} drafted tokens per step)")
    return "; ".join(parts)


SHORT = 0.9
"""Share of a bound below which the time of a step is named by its parts."""


def rest_of_step(row: Row, rows: Iterable[Row], baselines: Mapping[str, str]) -> str:
    """Parts of the time of a step, next to plain decoding's, if less than SHORT of the bound was reached; else empty.

    baselines: {contender: the plain decoding it is compared with}.
    """
    plain = next((r for r in rows if r.contender == baselines.get(row.contender)), None)
    if row.roof_fraction is None or row.roof_fraction >= SHORT or plain is None:
        return ""
    own_parts, theirs = step_parts(row), step_parts(plain)
    return f"{row.contender}: a step takes {own_parts}; a plain step {theirs}"


def step_parts(row: Row) -> str:
    """Milliseconds of a step, and of its hooks, the largest first. verify is the target's forward."""
    assert row.rate and row.tokens_per_step
    step = 1e3 * row.tokens_per_step / row.rate
    parts = sorted(row.split.items(), key=lambda part: -part[1])
    named = ", ".join(f"{name} {share * step:.3f}" for name, share in parts if share >= 0.01)
    return f"{step:.3f} ms ({named})"


def describe_difference(difference: Difference) -> str:
    if difference.unit == "character":
        other, plain = ("the end" if c is None else repr(chr(c)) for c in (difference.other, difference.plain))
        return f"{_place(difference)} at character {difference.position}: {other} for {plain}"
    other, plain = ("the end" if t is None else f"token {t}" for t in (difference.other, difference.plain))
    gap = "" if difference.gap is None else f"; the target's two best scores there are {difference.gap:.2g} apart"
    return f"{_place(difference)} at output position {difference.position}: {other} for {plain}{gap}{_why(difference)}"


def _place(difference: Difference) -> str:
    return f"{difference.contender} differs on {difference.prompt}"


def _why(difference: Difference) -> str:
    """The explanation of ``--exact``; empty without it."""
    if difference.flips is None:
        return ""
    scores = ", ".join(
        f"{score:.6g} of token {token}" for score, token in zip(difference.scores, difference.best, strict=True)
    )
    cause = (
        "flips there too: numerics"
        if difference.flips
        else "does not flip: the method, its rule or its rollback is at fault"
    )
    return f" ({scores}); plain decoding in steps of the same rows, {difference.rows} here, {cause}"


def cells_of(
    rows: Sequence[Row], names: Sequence[str], batch: int, level: float, listed: Sequence[Facet] = ()
) -> Cells:
    """The texts of these columns, the contender first. listed: facets; of several, each is a group of rows."""
    titles = {name: title(name, batch, level) for name in names}
    left = frozenset(titles[name] for name in LEFT if name in titles)
    groups: dict[int, str] = {}
    shown: list[Row] = []
    if len(listed) < 2:
        shown = list(rows)
    for facet in listed if len(listed) > 1 else ():
        groups[len(shown)] = facet.title
        shown += _rows_of_facet(rows, facet)
    return Cells(list(titles.values()), [[COLUMNS[name](row) for name in names] for row in shown], left, groups)


def _rows_of_facet(rows: Iterable[Row], facet: Facet) -> list[Row]:
    """Its plain decoding, then its methods, with their names inside the facet."""
    by_name = {row.contender: row for row in rows}
    names = {facet.baseline: PLAIN, **facet.series}
    return [attrs.evolve(by_name[name], contender=short) for name, short in names.items() if name in by_name]
