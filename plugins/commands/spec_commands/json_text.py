"""JSON that every parser reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def format_json(value: Any, indent: int | None = None) -> str:
    """JSON of a value, with null for NaN and infinities, which JSON lacks, and the text of what it has no form for."""
    try:
        return _dump(value, indent)
    except ValueError:
        return _dump(null_non_finite(value), indent)


def _dump(value: Any, indent: int | None) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str, indent=indent)


def null_non_finite(value: Any) -> Any:
    """The same lists, mappings and values, with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: null_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [null_non_finite(each) for each in value]
    return value
