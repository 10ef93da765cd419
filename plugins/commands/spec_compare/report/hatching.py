"""Hatching of bars as lines: a pattern of SVG becomes a picture in a printed page, and makes it large."""

from __future__ import annotations

from collections.abc import Iterator

HATCHES = {
    "": "",
    "//": "M3 12l8-10M11 12l8-10M19 12l8-10",
    "\\\\": "M3 2l8 10M11 2l8 10M19 2l8 10",
    "--": "M2 5h26M2 9h26",
    "xx": "M3 12l8-10M11 12l8-10M19 12l8-10M3 2l8 10M11 2l8 10M19 2l8 10",
    "||": "M7 2v10M12 2v10M18 2v10M23 2v10",
    "++": "M2 7h26M8 2v10M15 2v10M22 2v10",
    "/-": "M3 12l8-10M11 12l8-10M19 12l8-10M2 7h26",
}
"""Strokes of a bar's key of 30 by 14, by matplotlib's hatch."""
STEP, SLANT, LAYERS = 0.02, 0.03, 3
"""Distance of strokes and width of a slanting one, in shares of the axis, and spaces between horizontal ones."""
Segment = tuple[tuple[float, float], tuple[float, float]]


def hatch_name(i: int) -> str:
    """The hatch of the i-th series."""
    return list(HATCHES)[i % len(HATCHES)]


def hatch_segments(hatch: str, left: float, width: float, y: float, height: float) -> Iterator[Segment]:
    """Lines inside a bar around y."""
    right, bottom, top = left + width, y - height / 2, y + height / 2
    for direction in dict.fromkeys(hatch):
        if direction in "/x":
            yield from _slanting(left, right, top, bottom)
        if direction in "\\x":
            yield from _slanting(left, right, bottom, top)
        if direction in "|+":
            yield from (((x, bottom), (x, top)) for x in _places(left + STEP, right))
        if direction in "-+":
            heights = (bottom + height * i / LAYERS for i in range(1, LAYERS))
            yield from (((left, at), (right, at)) for at in heights if width)


def _slanting(left: float, right: float, start: float, end: float) -> Iterator[Segment]:
    """Lines from the height ``start`` to ``end``, cut where the bar ends."""
    for x in _places(left - SLANT + STEP, right):
        a, b = max(x, left), min(x + SLANT, right)
        if a < b:
            rise = (end - start) / SLANT
            yield (a, start + (a - x) * rise), (b, start + (b - x) * rise)


def _places(first: float, end: float) -> Iterator[float]:
    """Places of strokes before the end."""
    count = max(0, int((end - first) / STEP) + 1)
    return (x for x in (first + STEP * i for i in range(count)) if x < end)
