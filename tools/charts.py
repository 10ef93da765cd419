"""Figures of pages as SVG, readable in light and dark: panels of dots with intervals, of stacked bars, and of lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import attrs

STYLE = """
    .page { fill: #ffffff; stroke: #d0d7de; }
    .text { fill: #1f2328; }
    .dim { fill: #59636e; }
    .line { stroke: #d0d7de; }
    .base { stroke: #59636e; }
    .a { fill: #1f6feb; stroke: #1f6feb; }
    .b { fill: #bc4c00; stroke: #bc4c00; }
    .c { fill: #1a7f37; stroke: #1a7f37; }
    .d { fill: #8250df; stroke: #8250df; }
    .e { fill: #8c959f; stroke: #8c959f; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #161b22; stroke: #3d444d; }
      .text { fill: #e6edf3; }
      .dim { fill: #9da7b3; }
      .line { stroke: #3d444d; }
      .base { stroke: #9da7b3; }
      .a { fill: #4493f8; stroke: #4493f8; }
      .b { fill: #f0883e; stroke: #f0883e; }
      .c { fill: #3fb950; stroke: #3fb950; }
      .d { fill: #a371f7; stroke: #a371f7; }
      .e { fill: #6e7781; stroke: #6e7781; }
    }
  """
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
COLOURS = "abcde"
WIDTH = 720
LABELS = 176
"""Width of the labels at the left of a panel."""
ROW = 22
"""Height of a row of dots or a bar."""


@attrs.frozen
class Scale:
    """An axis from `low` to `high` on the pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(x) if self.logarithmic else x for x in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


@attrs.frozen
class Dot:
    """A value of a series (its index), with the ends of its interval if it has one."""

    series: int
    value: float
    low: float | None = None
    high: float | None = None


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "text", more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "line", width: float = 1) -> str:
    return f'<path class="{kind}" stroke-width="{width}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def heading(x: float, y: float, words: str) -> str:
    return text(x, y, words, more=' font-weight="600"')


def picture(title: str, description: str, parts: Sequence[str], height: float) -> str:
    """A whole file. description: for screen readers."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    page = f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="10"/>'
    body = "\n  ".join([page, *parts])
    return (
        f'{head} aria-labelledby="title desc" font-family="{FONT}" font-size="13">\n'
        f'  <title id="title">{escape(title)}</title>\n  <desc id="desc">{escape(description)}</desc>\n'
        f"  <style>{STYLE}</style>\n  {body}\n</svg>\n"
    )


def legend(y: float, names: Sequence[str], x: float = 18) -> list[str]:
    """One line of series names with their colours."""
    parts = []
    for colour, name in zip(COLOURS, names, strict=False):
        parts += [f'<rect class="{colour}" x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" rx="2"/>']
        parts += [text(x + 15, y, name)]
        x += 34 + 7.2 * len(name)
    return parts


def dots(
    y: float,
    title: str,
    rows: Sequence[tuple[str, Sequence[Dot]]],
    scale: Scale,
    ticks: Sequence[float],
    base: float | None = None,
) -> tuple[list[str], float]:
    """A panel with a label and dots a row, and the y below it. base: the tick with a stronger line."""
    parts, bottom = _frame(y, title, len(rows), scale, ticks, base)
    for index, (name, values) in enumerate(rows):
        middle = y + 20 + (index + 0.5) * ROW
        parts.append(text(LABELS - 10, middle + 4, name, "end"))
        for order, dot in enumerate(values):
            parts += _dot(dot, scale, middle + min(5, 16 / len(values)) * (order - (len(values) - 1) / 2))
    return parts, bottom


def _dot(dot: Dot, scale: Scale, y: float) -> list[str]:
    colour = COLOURS[dot.series]
    span = [] if dot.low is None or dot.high is None else [line(scale(dot.low), y, scale(dot.high), y, colour, 1.5)]
    return [*span, f'<circle class="{colour}" cx="{scale(dot.value):.1f}" cy="{y:.1f}" r="3.5"/>']


def bars(
    y: float, title: str, rows: Sequence[tuple[str, Sequence[float]]], scale: Scale, ticks: Sequence[float]
) -> tuple[list[str], float]:
    """A panel with a bar a row, stacked of one value a series."""
    parts, bottom = _frame(y, title, len(rows), scale, ticks, None)
    for index, (name, values) in enumerate(rows):
        top, left = y + 20 + index * ROW, 0.0
        parts.append(text(LABELS - 10, top + ROW / 2 + 4, name, "end"))
        for colour, value in zip(COLOURS, values, strict=False):
            x, width = scale(left), scale(left + value) - scale(left)
            parts.append(
                f'<rect class="{colour}" stroke="none" x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="14"/>'
            )
            left += value
    return parts, bottom


def _frame(
    y: float,
    title: str,
    rows: int,
    scale: Scale,
    ticks: Sequence[float],
    base: float | None,
) -> tuple[list[str], float]:
    """Title, vertical lines and labels of ticks around `rows` rows."""
    top, end = y + 20, y + 20 + rows * ROW
    parts = [heading(18, y + 8, title)]
    for tick in ticks:
        parts.append(line(scale(tick), top, scale(tick), end, "base" if tick == base else "line"))
        parts.append(text(scale(tick), end + 15, f"{tick:g}", "middle", "dim"))
    return parts, end + 42


def curves(
    x: Scale, y: Scale, title: str, values: Sequence[Sequence[float]], names: Sequence[str], ticks: Sequence[float]
) -> list[str]:
    """A panel with a curve a series, over categories with names."""
    parts = [heading(x.start - 14, y.end - 14, title)]
    for tick in ticks:
        parts += [
            line(x.start - 14, y(tick), x.end + 10, y(tick)),
            text(x.start - 18, y(tick) + 4, f"{tick:g}", "end", "dim"),
        ]
    parts += [text(x(i), y.start + 18, name, "middle", "dim") for i, name in enumerate(names)]
    for colour, series in zip(COLOURS, values, strict=False):
        points = [(x(i), y(value)) for i, value in enumerate(series)]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path class="{colour}" style="fill: none" stroke-width="2" d="M{path}"/>')
        parts += [f'<circle class="{colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points]
    return parts
