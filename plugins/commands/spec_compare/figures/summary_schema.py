"""The JSON schema of ``summary.json``, made from the data classes; ``summary.schema.json`` is its text.

Like the schema of results it accepts names that it does not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from spec_commands.machine import Load
from spec_commands.timing_warnings import TimingWarning
from spec_costs.limits import Limits

from spec_compare.figures.difference import Difference
from spec_compare.figures.equality import EqualityRow
from spec_compare.figures.lengths import LengthRow
from spec_compare.figures.pairs import Pair
from spec_compare.figures.routing import RoutingBound
from spec_compare.figures.summary import Row
from spec_compare.records.schema import DIALECT, of_type

FILE = Path(__file__).with_name("summary.schema.json")
LISTS: dict[str, type] = {
    "rows": Row,
    "pairs": Pair,
    "routing": RoutingBound,
    "equality": EqualityRow,
    "lengths": LengthRow,
    "differences": Difference,
    "warnings": TimingWarning,
    "limits": Limits,
}
CIRCUMSTANCES = {
    "target": "string",
    "device": "string",
    "dtype": "string",
    "exact": "string",
    "seed": "integer",
    "repeats": "integer",
    "batch": "integer",
    "interval": "number",
    "environment": "object",
    "settings": "object",
}
"""Fields that ``outcome.circumstances`` adds, but for ``threads`` and ``kernels``, which a target may leave out."""


def summary() -> dict[str, Any]:
    """The schema of the object that ``--json`` prints."""
    properties: dict[str, Any] = {name: {"type": "array", "items": _object(cls)} for name, cls in LISTS.items()}
    properties["unknown"] = {"type": "array", "items": {"type": "string"}}
    properties |= {"load": _object(Load)} | {name: {"type": kind} for name, kind in CIRCUMSTANCES.items()}
    return {
        "$schema": DIALECT,
        "title": "summary.json of spec compare",
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
    }


def _of_type(kind: Any) -> dict[str, Any]:
    return _object(kind) if attrs.has(kind) else of_type(kind)


def _object(cls: type) -> dict[str, Any]:
    """Schema of a class, whose fields are all required."""
    fields = attrs.fields(attrs.resolve_types(cls))
    return {
        "type": "object",
        "properties": {field.name: _of_type(field.type) for field in fields},
        "required": sorted(field.name for field in fields),
    }
