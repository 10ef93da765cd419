"""The figures of a report, each with its data as a table for those who do not see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from spec_costs.bounds import perfect
from spec_costs.curve import Curve

from spec_compare.bounds import depth
from spec_compare.outcome import Outcome, draft_max
from spec_compare.records.record import Record
from spec_compare.report import svg
from spec_compare.summary import ALL, Row

POSITIONS = 16
"""Number of draft positions that are shown."""


@attrs.frozen
class Figure:
    """name: of its element. svg: the drawing. heads, cells: its data."""

    name: str
    title: str
    about: str
    svg: str
    heads: list[str]
    cells: list[list[str]]


def figures(result: Outcome) -> Iterator[Figure]:
    """Figures for which the outcome has data."""
    rows = [row for row in result.rows if row.family == ALL]
    drafting = [row for row in rows if row.draft_acceptance is not None]
    timed = [row for row in drafting if row.speedup is not None]
    if timed:
        yield speedups(result, timed)
    if drafting:
        yield acceptance(result, drafting)
        yield lengths(result, drafting)
    for baseline in result.costs:
        yield step_costs(result, baseline)
    if any(row.split for row in rows):
        yield time_split([row for row in rows if row.split])
    if timed:
        yield efficiency(result, timed)


def speedups(result: Outcome, rows: list[Row]) -> Figure:
    """Figure of the speedups over all prompts with intervals, and of each family."""
    families = [row for row in result.rows if row.family != ALL and row.speedup is not None]
    with svg.axes(height=0.9 + 0.42 * len(rows)) as ax:
        for y, row in enumerate(rows):
            own_speedups, look = (
                [f.speedup for f in families if f.contender == row.contender],
                style(result, row.contender),
            )
            ax.plot(own_speedups, [y] * len(own_speedups), "|", color=look["color"], alpha=0.7, markersize=9)
            if row.low is not None and row.high is not None:
                ax.plot([row.low, row.high], [y, y], color=look["color"], linewidth=2.5)
            ax.plot([row.speedup], [y], markersize=8, **look)
        ax.axvline(1, color=svg.INK, linewidth=1)
        ax.set_yticks(range(len(rows)), [shorten(row.contender) for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel("speedup over plain decoding")
        drawn = ax.figure
    about = "A point per contender with the interval over prompts; small strokes are families of prompts."
    heads = ["contender", "speedup", "interval", *dict.fromkeys(f.family for f in families)]
    cells = [
        [r.contender, number(r.speedup), span(r), *(number(_of(families, r.contender, f)) for f in heads[3:])]
        for r in rows
    ]
    return figure_of("speedup", "Speedup", about, drawn, heads, cells)


def _of(rows: list[Row], contender: str, family: str) -> float | None:
    return next((r.speedup for r in rows if (r.contender, r.family) == (contender, family)), None)


def acceptance(result: Outcome, rows: list[Row]) -> Figure:
    """Marginal and conditional, by position."""
    with svg.axes(2) as (left, right):
        for row in rows:
            look = style(result, row.contender) | {"markersize": 4, "label": shorten(row.contender)}
            for ax, values in ((left, row.marginal), (right, row.conditional)):
                ax.plot(range(1, len(values[:POSITIONS]) + 1), values[:POSITIONS], **look)
        for ax, title in ((left, "marginal"), (right, "conditional")):
            ax.set_title(title, fontsize=11)
            ax.set_ylim(0, 1.05)
            ax.set_xlabel("position in the draft")
        left.set_ylabel("accepted")
        left.figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        drawn = left.figure
    about = (
        "Marginal: accepted of the drafts that reached a position. "
        "Conditional: accepted of those whose tokens before it were accepted."
    )
    cells = [
        [row.contender, str(i + 1), number(m), number(_get(row.conditional, i)), str(_get(row.tested_per_pos, i) or 0)]
        for row in rows
        for i, m in enumerate(row.marginal[:POSITIONS])
    ]
    return figure_of(
        "acceptance",
        "Acceptance by position",
        about,
        drawn,
        ["contender", "position", "marginal", "conditional", "tests"],
        cells,
    )


def lengths(result: Outcome, rows: list[Row]) -> Figure:
    """Figure of the number of accepted tokens of a draft."""
    shares = {row.contender: _shares(records_of(result, row.contender)) for row in rows}
    with svg.axes() as ax:
        for name, own_shares in shares.items():
            values = [own_shares.get(n, 0.0) for n in range(max(own_shares, default=0) + 1)]
            ax.plot(range(len(values)), values, markersize=4, label=shorten(name), **style(result, name))
        ax.set_xlabel("accepted tokens of a draft")
        ax.set_ylabel("share of drafts")
        ax.set_ylim(bottom=0)
        ax.legend()
        drawn = ax.figure
    cells = [[name, str(n), f"{own_shares[n]:.1%}"] for name, own_shares in shares.items() for n in sorted(own_shares)]
    about = "Share of the drafts by their number of accepted tokens. Steps without a draft are left out."
    return figure_of("lengths", "Accepted lengths", about, drawn, ["contender", "accepted", "share"], cells)


def _shares(records: Sequence[Record]) -> dict[int, float]:
    pairs = [(d, a) for r in records for d, a in zip(r.steps.drafted, r.steps.accepted, strict=True)]
    counts = Counter(accepted for drafted, accepted in pairs if drafted)
    return {n: count / counts.total() for n, count in sorted(counts.items())}


def step_costs(result: Outcome, baseline: str) -> Figure:
    """T(n) with the mean number of rows of each contender."""
    curve = curve_of(result, baseline)
    rows = [r for r in result.rows if r.family == ALL and r.contender in contenders_of(result, baseline)]
    points = [(row.contender, mean_rows(records_of(result, row.contender))) for row in rows]
    with svg.axes() as ax:
        ax.plot(list(curve.seconds), [s / curve(1) for s in curve.seconds.values()], color=svg.INK, marker=".")
        for name, x in points:
            y = _between(curve, x) / curve(1)
            ax.plot([x], [y], markersize=9, linestyle="", label=shorten(name), **style(result, name))
        ax.set_xlabel("rows of a step")
        ax.set_ylabel("time in plain steps")
        ax.set_ylim(bottom=0)
        ax.legend()
        drawn = ax.figure
    cells = [[str(n), f"{s * 1e3:.3f}", number(s / curve(1))] for n, s in curve.seconds.items()]
    cells += [
        [f"{x:.1f} ({name})", f"{_between(curve, x) * 1e3:.3f}", number(_between(curve, x) / curve(1))]
        for name, x in points
    ]
    about = "Time of a step by its rows, and where each contender works: the mean rows of its steps."
    title = "Cost of a step" if len(result.costs) == 1 else f"Cost of a step, {baseline}"
    name = f"cost-{list(result.costs).index(baseline)}"
    return figure_of(name, title, about, drawn, ["rows", "ms", "plain steps"], cells)


def time_split(rows: list[Row]) -> Figure:
    """Share of the time of a step by hook."""
    parts = list(dict.fromkeys(part for row in rows for part in row.split))
    hatches = ("", "//", "\\\\", "..", "xx", "--", "oo", "++")
    with svg.axes(height=1.4 + 0.42 * len(rows)) as ax:
        for i, part in enumerate(parts):
            left = [sum(row.split.get(p, 0.0) for p in parts[:i]) for row in rows]
            width = [row.split.get(part, 0.0) for row in rows]
            look = {"color": "none", "edgecolor": svg.series(i), "hatch": hatches[i % len(hatches)] * 2 or None}
            ax.barh(range(len(rows)), width, left=left, label=part, height=0.6, **look)
        ax.set_yticks(range(len(rows)), [shorten(row.contender) for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlim(0, 1)
        ax.set_xlabel("share of the time of a step")
        ax.figure.legend(loc="outside lower center", ncols=4)
        drawn = ax.figure
    cells = [[row.contender, *(f"{row.split.get(part, 0.0):.1%}" for part in parts)] for row in rows]
    about = "verify is the target's forward; host is everything outside the hooks."
    return figure_of("split", "Where the time goes", about, drawn, ["contender", *parts], cells)


def efficiency(result: Outcome, rows: list[Row]) -> Figure:
    """Speedup over tokens per step, with what the costs allow."""
    with svg.axes() as ax:
        x_max = max(row.tokens_per_step or 1.0 for row in rows) * 1.15
        ax.plot([1, x_max], [1, x_max], color=svg.FAINT, label="a step as cheap as a plain one")
        for baseline in list(result.costs)[:1]:
            curve, longest = curve_of(result, baseline), max(draft_max(c) for c in result.header.contenders)
            ks = [k for k in range(longest + 1) if k + 1 <= x_max + 1]
            perfectly = [(k + 1) * curve(1) / curve(k + 1) for k in ks]
            ax.plot([k + 1 for k in ks], perfectly, "--", color=svg.INK, label="free drafts, all accepted")
            best = perfect(curve, longest).speedup
            ax.axhline(best, color=svg.INK, linestyle=":", label=f"the machine's bound, {best:.2f}")
        for row in rows:
            look = style(result, row.contender) | {"markersize": 8, "linestyle": "", "label": shorten(row.contender)}
            ax.plot([row.tokens_per_step], [row.speedup], **look)
        ax.set_xlim(0.9, x_max)
        ax.set_xlabel("tokens per step")
        ax.set_ylabel("speedup")
        ax.figure.legend(loc="outside lower center", ncols=2, fontsize=9)
        drawn = ax.figure
    heads = ["contender", "tokens per step", "speedup", "acceptance bound", "of bound", "hardware bound"]
    cells = [
        [
            r.contender,
            *map(number, (r.tokens_per_step, r.speedup, r.acceptance_bound, r.roof_fraction, r.hardware_bound)),
        ]
        for r in rows
    ]
    about = "Below the dashed line, time is lost to rejected tokens, to drafting, or beside the forward."
    return figure_of("efficiency", "Speedup over tokens per step", about, drawn, heads, cells)


def style(result: Outcome, contender: str) -> dict[str, str]:
    """Colour and marker of a contender, the same in every figure; plain decoding has the colour of the text."""
    facts = result.header.contenders
    if any(c.name == c.baseline == contender for c in facts):
        return {"color": svg.INK, "marker": "."}
    i = [c.name for c in facts if c.name != c.baseline].index(contender)
    return {"color": svg.series(i), "marker": svg.marker(i)}


def records_of(result: Outcome, contender: str) -> list[Record]:
    return [record for lap in result.laps if lap.contender == contender for record in lap.records]


def contenders_of(result: Outcome, baseline: str) -> list[str]:
    return [c.name for c in result.header.contenders if c.baseline == baseline]


def curve_of(result: Outcome, baseline: str) -> Curve:
    """Cost curve at the mean depth of the laps."""
    return result.costs[baseline].curves(result.header.batch).at(depth(records_of(result, baseline)))


def mean_rows(records: Sequence[Record]) -> float:
    drafted = [d for record in records for d in record.steps.drafted]
    return 1 + sum(drafted) / len(drafted) if drafted else 1.0


def _between(curve: Curve, x: float) -> float:
    low = int(x)
    return curve(low) + (curve(low + 1) - curve(low)) * (x - low)


def figure_of(name: str, title: str, about: str, drawn: Any, heads: list[str], cells: list[list[str]]) -> Figure:
    """A drawing with its data."""
    return Figure(
        name, title, about, svg.text_of(drawn, name, f"{title}. {about} The data follow as a table."), heads, cells
    )


def _get(values: Sequence[Any], i: int) -> Any:
    return values[i] if i < len(values) else None


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def span(row: Row) -> str:
    return "-" if row.low is None or row.high is None else f"{row.low:.2f} to {row.high:.2f}"


def shorten(name: str, length_max: int = 24) -> str:
    """A name that fits beside a figure."""
    return name if len(name) <= length_max else name[: length_max - 1] + "…"
