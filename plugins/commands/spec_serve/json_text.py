"""JSON of answers, written in short steps: one call for a long list would keep all other threads from running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

STEP = 512
"""Values that are written by one call."""
TEXT_STEP = 64
"""Characters that count as one value."""


def json_pieces(value: Any) -> Iterator[str]:
    """The text of a value in pieces, in their order."""
    if _weight(value, STEP) <= STEP or not isinstance(value, (dict, list, tuple)):
        yield json.dumps(value, separators=(",", ":"), allow_nan=False)
    elif isinstance(value, dict):
        for at, (key, item) in enumerate(value.items()):
            yield f"{',' if at else '{'}{json.dumps({key: 0})[1:-4]}:"
            yield from json_pieces(item)
        yield "}"
    else:
        for at, group in enumerate(_groups(value)):
            yield "," if at else "["
            if len(group) == 1:
                yield from json_pieces(group[0])
            else:
                yield json.dumps(group, separators=(",", ":"), allow_nan=False)[1:-1]
        yield "]"


def _groups(items: list[Any] | tuple[Any, ...]) -> Iterator[list[Any]]:
    """Neighbouring items that are written by one call."""
    group: list[Any] = []
    weights = 0
    for item in items:
        weight = _weight(item, STEP)
        if group and weights + weight > STEP:
            yield group
            group, weights = [], 0
        group.append(item)
        weights += weight
    if group:
        yield group


def _weight(value: Any, most: int) -> int:
    """Number of its values, counted until there are more than ``most``."""
    if isinstance(value, str):
        return 1 + len(value) // TEXT_STEP
    if not isinstance(value, (dict, list, tuple)):
        return 1
    weight = 1
    for item in islice(value.values() if isinstance(value, dict) else value, most):
        weight += _weight(item, most - weight)
        if weight > most:
            break
    return weight if len(value) <= most else most + 1
