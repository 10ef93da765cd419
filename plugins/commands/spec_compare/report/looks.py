"""The look of each contender, the same in every figure and facet, its key for a legend, and names that fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from spec_compare.figures.facets import facets, series_names, short_names
from spec_compare.figures.outcome import Outcome
from spec_compare.report import svg
from spec_compare.report.hatching import HATCHES

PATHS = {
    "o": "M15 2.5a4.5 4.5 0 1 0 .01 0Z",
    "s": "M11 3h8v8h-8Z",
    "^": "M15 2l5 10h-10Z",
    "D": "M15 1.5l5.5 5.5-5.5 5.5-5.5-5.5Z",
    "v": "M15 12l5-10h-10Z",
    "P": "M13.3 2h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3Z",
    "X": "M11.5 2l3.5 3.2 3.5-3.2 1.5 1.5-3.2 3.5 3.2 3.5-1.5 1.5-3.5-3.2-3.5 3.2-1.5-1.5 3.2-3.5-3.2-3.5Z",
    "*": "M15 1l1.6 4.2 4.4.2-3.5 2.7 1.2 4.3-3.7-2.4-3.7 2.4 1.2-4.3-3.5-2.7 4.4-.2Z",
    ".": "M15 5a2 2 0 1 0 .01 0Z",
    "": "",
}
"""Outlines of matplotlib's markers in a key of 30 by 14."""


@attrs.frozen
class Look:
    """Colour, marker and line of a series. colour: a placeholder of ``svg``."""

    color: str
    marker: str = ""
    linestyle: str = "-"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of matplotlib."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.linestyle}

    @property
    def hollow(self) -> dict[str, Any]:
        """Arguments of a point that others may lie under."""
        shape = {"marker": self.marker, "markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.8}
        return {"color": self.color, "linestyle": "", **shape}


@attrs.frozen
class Key:
    """An entry of a legend: a line with a marker, or a bar.

    path: outline of the marker; empty for none. hatch: of a bar, as matplotlib calls it; None for a line.
    """

    name: str
    color: str
    path: str
    dashes: str
    hatch: str | None = None

    @property
    def strokes(self) -> str:
        """Lines inside the box of a bar."""
        return HATCHES[self.hatch or ""]

    @classmethod
    def of(cls, name: str, look: Look) -> Key:
        """The key of a series."""
        return cls(name, svg.VARIABLES[look.color], PATHS[look.marker], DASHES[look.linestyle])


DASHES = {"-": "none", "--": "7 3", "-.": "7 3 2 3", ":": "2 3", "": "0 99"}
"""Dashes of a key, by matplotlib's style of a line; the last one has no line."""
LINES = ("-", "--", "-.", ":")


def contender_looks(outcome: Outcome) -> dict[str, Look]:
    """The look of every contender; plain decoding has the colour of the text.

    Contenders that differ in the facet alone look alike. The first 64 series differ in colour or marker.
    """
    listed = facets(outcome.header)
    number = {name: i for i, name in enumerate(series_names(listed))}
    plain = {facet.baseline: Look(svg.INK, ".") for facet in listed}
    return plain | {name: _look(number[series]) for facet in listed for name, series in facet.series.items()}


def _look(i: int) -> Look:
    """Colours repeat after 8 series, with the next marker and the next style of a line."""
    count = len(svg.SERIES)
    return Look(svg.series(i), svg.marker(i + i // count), LINES[i // count % len(LINES)])


def keys_of(outcome: Outcome, contenders: Iterable[str]) -> list[Key]:
    """The legend of these contenders: a key per series."""
    own, names = contender_looks(outcome), short_names(outcome.header)
    return list({names[name]: Key.of(names[name], own[name]) for name in contenders}.values())
