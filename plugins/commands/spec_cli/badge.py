"""The badge of a check: the contract, and how many of its promises a plugin keeps, for a README."""

from __future__ import annotations

import json
from html import escape

from spec_core import CONTRACT

SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {said}">
<title>{label}: {said}</title>
<rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{label_at}" y="14">{label}</text><text x="{said_at}" y="14">{said}</text>
</g>
</svg>
"""
LABEL = "spec-core contract {}.{}".format(*CONTRACT)
GREEN, RED = "#2c7a2c", "#b3261e"
LETTER = 7
"""Pixels of a letter of the badge."""
MARGIN = 10
"""Pixels on each side of a text of the badge."""


def badge(kept: int, broken: int, suffix: str) -> str:
    """An SVG image; for the suffix ``.json`` what shields.io's endpoint badges read."""
    summary = f"{broken} of {broken + kept} checks failed" if broken else f"{kept} checks"
    colour = RED if broken else GREEN
    return endpoint(summary, colour) if suffix == ".json" else picture(summary, colour)


def endpoint(summary: str, colour: str) -> str:
    """The JSON of an endpoint badge: https://shields.io/badges/endpoint-badge."""
    return json.dumps({"schemaVersion": 1, "label": LABEL, "message": summary, "color": colour}) + "\n"


def picture(summary: str, colour: str) -> str:
    left, right = (MARGIN + LETTER * len(text) for text in (LABEL, summary))
    return SVG.format(
        width=left + right,
        left=left,
        right=right,
        label=escape(LABEL),
        said=escape(summary),
        label_at=left / 2,
        said_at=left + right / 2,
        colour=colour,
    )
