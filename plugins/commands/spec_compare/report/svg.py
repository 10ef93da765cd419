"""Matplotlib figures as SVG for a page: colours of the page's style sheet, its font, and ids that do not collide."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spec_core.errors import UsageError

SERIES = ("#0000c0", "#0000c1", "#0000c2", "#0000c3", "#0000c4", "#0000c5", "#0000c6", "#0000c7")
"""Stand for the colours ``--c0`` to ``--c7`` of the style sheet, which differ between light and dark."""
INK = "#0000f0"
"""Stands for ``--ink``, the colour of text and axes."""
FAINT = "#0000f1"
"""Stands for ``--faint``, the colour of lines of the grid."""
VARIABLES = {colour: f"var(--c{i})" for i, colour in enumerate(SERIES)} | {INK: "var(--ink)", FAINT: "var(--faint)"}
MARKERS = "os^DvPX*"
"""Markers of the series, so that they differ without colours too."""
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "spec",
    "text.parse_math": False,
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
WIDTH, HEIGHT = 4.2, 2.9
"""Inches of a drawing: on a phone of 360 pixels its text has 11 of them."""


def check_matplotlib() -> None:
    """Raise UsageError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "a report needs matplotlib, which is not installed",
            hint="install the extra: pip install 'spec-core[report]'",
        ) from error


@contextmanager
def axes(columns: int = 1, height: float = HEIGHT, rows: int = 1) -> Iterator[Any]:
    """Axes to draw on: one, a list, or a list of rows.

    Their figure has the style of the page, whatever the user's own settings.
    """
    from matplotlib import rc_context, rcdefaults
    from matplotlib.figure import Figure

    with rc_context():
        rcdefaults()
        with rc_context(STYLE):
            figure = Figure(figsize=(WIDTH, height))
            panels = figure.subplots(rows, columns)
            yield panels


def count_along(ax: Any) -> None:
    """Mark whole numbers alone along the axis: it counts."""
    ax.xaxis.get_major_locator().set_params(integer=True)


def series(i: int) -> str:
    return SERIES[i % len(SERIES)]


def marker(i: int) -> str:
    return MARKERS[i % len(MARKERS)]


def text_of(figure: Any, name: str, label: str) -> str:
    """The SVG element. name: prefix of its ids. label: what a screen reader says."""
    from markupsafe import escape
    from matplotlib import rc_context

    data = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(data, format="svg", metadata={"Date": None})
    text = data.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = text.replace("xlink:href=", "href=")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'[^;\"]*", r"\1system-ui, sans-serif", text)
    text = re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{escape(label)}">', text, count=1
    )
    return text
