"""The figures of a report as files for a paper: SVG or PDF of a column's width, with legends and printable colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spec_commands import common

from spec_compare.figures.outcome import Outcome
from spec_compare.figures.timing_warnings import describe_unreliability
from spec_compare.figures.titles import cut_middle
from spec_compare.report import svg
from spec_compare.report.figure import Figure, Part
from spec_compare.report.figures import figures
from spec_compare.report.looks import DASHES, PATHS, Key
from spec_core.errors import UsageError

FORMATS = ("svg", "pdf")
WIDTH = 3.35
"""Inches: a column of a page with two."""
SCALE = 0.72
"""Of the texts: 11 points on a screen become 8 on paper."""
THIN = 0.6
"""Of lines and markers."""
SMALL, COLUMNS, LINE = 6.5, 2, 0.14
"""Points of a legend, its columns, and inches of a line of it."""
NAME_MAX = 28
"""Max characters of a name in a legend of two columns."""
COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#a0498a", "#8a6d00", "#3a86b8", "#b03030", "#555555")
"""Of the series on white paper, from Okabe and Ito's palette, darker where lines were too light."""
PRINTED = dict(zip(svg.SERIES, COLOURS, strict=True)) | {svg.INK: "#000000", svg.FAINT: "#cccccc"}
PROPERTIES = ("color", "edgecolor", "facecolor", "markerfacecolor", "markeredgecolor")


def write_figures(outcome: Outcome, folder: Path, formats: Iterable[str]) -> list[Path]:
    """One file per drawing and format: ``speedup.pdf``, or ``speedup-1.pdf`` if a figure has several drawings.

    Raises UsageError for an unknown format, without matplotlib, and if a file cannot be written.
    """
    chosen, note = check_formats(formats), describe_unreliability(outcome.warnings)
    svg.check_matplotlib()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            path
            for figure in figures(outcome)
            for stem, part in named_parts(figure)
            for path in write_drawing(figure, part, [folder / f"{stem}.{form}" for form in chosen], note)
        ]
    except OSError as error:
        raise common.write_error(folder, error) from error


def check_formats(formats: Iterable[str]) -> list[str]:
    """The formats. Raises UsageError for an unknown one."""
    chosen = [form.strip() for form in formats]
    if unknown := [form for form in chosen if form not in FORMATS]:
        raise UsageError(f"--format {unknown[0]!r} is not known", hint=f"formats: {', '.join(FORMATS)}")
    return chosen


def named_parts(figure: Figure) -> Iterator[tuple[str, Part]]:
    """(stem of the file, drawing)."""
    for number, part in enumerate(figure.parts, 1):
        yield figure.name if len(figure.parts) == 1 else f"{figure.name}-{number}", part


def write_drawing(figure: Figure, part: Part, paths: list[Path], note: str) -> list[Path]:
    """Write one drawing, in a format per path. note: above it, where times are unreliable."""
    from matplotlib import rc_context

    drawn, keys = part.drawn, figure.legend
    fit_paper(drawn)
    width, height = drawn.get_size_inches()
    drawn.set_size_inches(width, height + LINE * (-(-len(keys) // COLUMNS) + (2 if note else 0)))
    with rc_context({**svg.STYLE, "text.color": "#000000", "pdf.fonttype": 42}):
        if keys:
            handles = [handle_of(key) for key in keys]
            drawn.legend(handles=handles, loc="outside lower center", ncols=COLUMNS, fontsize=SMALL, handlelength=1.6)
        if note:
            drawn.suptitle(note, fontsize=SMALL, wrap=True)
        for path in paths:
            drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"CreationDate": None})
    return paths


def fit_paper(drawn: Any) -> None:
    """Give a drawing the width of a column, texts of its size, and colours for white paper."""
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    width, height = drawn.get_size_inches()
    drawn.set_size_inches(WIDTH, height * WIDTH / width)
    for text in drawn.findobj(Text):
        text.set_fontsize(text.get_fontsize() * SCALE)
    for line in drawn.findobj(Line2D):
        line.set_linewidth(line.get_linewidth() * THIN)
        line.set_markersize(line.get_markersize() * THIN)
    for artist in drawn.findobj():
        for name in PROPERTIES:
            _recolour(artist, name)


def _recolour(artist: Any, name: str) -> None:
    """Replace a placeholder among the colours of an artist; of a collection, the first one counts."""
    from matplotlib.colors import to_hex

    get, change = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
    if get is None or change is None:
        return
    value = get()
    if hasattr(value, "ndim") and value.ndim == 2:
        value = value[0] if len(value) else "none"
    try:
        colour = to_hex(value)
    except (ValueError, TypeError):  # no colour, such as "auto" of a marker
        return
    if colour in PRINTED and str(value) != "none":
        change(PRINTED[colour])


def handle_of(key: Key) -> Any:
    """The entry of a legend, drawn as its series is."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    name = cut_middle(key.name, NAME_MAX)
    colour = next(PRINTED[placeholder] for placeholder, name in svg.VARIABLES.items() if name == key.color)
    if key.hatch is not None:
        return Patch(facecolor="none", edgecolor=colour, hatch=key.hatch * 2 or None, label=name)
    marker = next(mark for mark, path in PATHS.items() if path == key.path)
    style: Any = next(style for style, dashes in DASHES.items() if dashes == key.dashes) or "none"
    return Line2D([], [], color=colour, marker=marker, linestyle=style, markersize=4, linewidth=1.2, label=name)
