"""The figure of the context curve."""

from __future__ import annotations

from typing import Any

from spec_compare.figures.lengths import LengthRow
from spec_compare.figures.outcome import Outcome
from spec_compare.figures.summary import Row
from spec_compare.inputs.sized import EXTENSION
from spec_compare.report import svg
from spec_compare.report.figure import Figure, Panel, facet_panels, figure_of, number
from spec_compare.report.looks import contender_looks, keys_of


def context_curve(outcome: Outcome, rows: list[Row]) -> Figure:
    """Speedup and tokens per step of drafting contenders over the length of the prompts."""
    drawings = [(panel.title, _draw(outcome, panel)) for panel in facet_panels(outcome, rows)]
    names = [row.contender for row in rows]
    cells = [
        [r.contender, str(r.length), str(r.prompts), number(r.speedup), _span(r), number(r.tokens_per_step)]
        for r in outcome.lengths
        if r.contender in names
    ]
    heads = ["contender", "tokens of the prompt", "prompts", "speedup", "interval", "tokens per step"]
    about = f"Bars are intervals over prompts. {EXTENSION[0].upper()}{EXTENSION[1:]}."
    return figure_of("context", "Context length", about, drawings, heads, cells, keys_of(outcome, names))


def _draw(outcome: Outcome, panel: Panel) -> Any:
    own_looks = contender_looks(outcome)
    lengths = sorted({row.length for row in outcome.lengths})
    with svg.axes(2) as (left, right):
        for name in (row.contender for row in panel.rows):
            own = [row for row in outcome.lengths if row.contender == name]
            look = own_looks[name].options | {"markersize": 4}
            for ax, field in ((left, "speedup"), (right, "tokens_per_step")):
                points = [(row.length, y) for row in own if (y := getattr(row, field)) is not None]
                ax.plot([x for x, _ in points], [y for _, y in points], **look)
            for row in own:
                if row.low is not None and row.high is not None:
                    left.plot([row.length] * 2, [row.low, row.high], color=look["color"], linewidth=1)
        left.axhline(1, color=svg.INK, linewidth=1)
        for ax, title in ((left, "speedup"), (right, "tokens per step")):
            ax.set_title(title, fontsize=11)
            ax.set_xlabel("prompt tokens")
            ax.set_xscale("log", base=2)
            ax.set_xticks(lengths, [short_count(length) for length in lengths])
            ax.minorticks_off()
        return left.figure


def short_count(length: int) -> str:
    """``512``, ``8k``."""
    return f"{length >> 10}k" if length >= 1024 and length % 1024 == 0 else str(length)


def _span(row: LengthRow) -> str:
    return "-" if row.low is None or row.high is None else f"{row.low:.2f} to {row.high:.2f}"
