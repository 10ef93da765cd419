"""Numbers of a schema that the library below, which computes with doubles, would round.

Bounds are narrowed to the next double inside of them, so that every text is valid; constants are exact or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nextafter
from typing import Any

from spec_core import UsageError
from spec_core.errors import quote_value

EXACT_MAX = 1 << 53
"""Whole numbers up to here are exact as doubles."""
LARGEST = (1 << 63) - 1024
"""The largest double below 2^63, the end of what the library can write."""
INT64_MAX = (1 << 63) - 1
"""The one number above that which the library writes: its largest."""
ONE_SIDED_MAX = 10**17
"""A bound beyond this needs one on the other side: the library writes no more digits than it was told."""
LOWER, UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


def narrow_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with bounds that are exact. Raises UsageError where no number is left between them."""
    numbers = {key: schema[key] for key in (*LOWER, *UPPER) if is_number(schema.get(key))}
    if all(abs(number) < EXACT_MAX for number in numbers.values()):
        return schema
    lower = max((_next_inside(numbers[key], key, 1) for key in LOWER if key in numbers), default=None)
    upper = min((_next_inside(numbers[key], key, -1) for key in UPPER if key in numbers), default=None)
    if (lower or 0) > LARGEST or (upper or 0) < -LARGEST:
        raise _too_large(numbers)
    if lower is not None and lower > ONE_SIDED_MAX and upper is None:
        upper = LARGEST
    if upper is not None and upper < -ONE_SIDED_MAX and lower is None:
        lower = -LARGEST
    lower = None if lower is None else max(lower, -LARGEST)
    upper = None if upper is None else min(upper, LARGEST)
    if lower is not None and upper is not None and lower > upper:
        raise _too_large(numbers)
    narrowed = {"minimum": lower, "maximum": upper}
    rest = {key: value for key, value in schema.items() if key not in numbers}
    return rest | {key: value for key, value in narrowed.items() if value is not None}


def _too_large(numbers: Mapping[str, Any]) -> UsageError:
    name, number = max(numbers.items(), key=lambda item: abs(item[1]))
    return UsageError(
        f"the JSON schema has {name} {quote_value(number)}, which cannot be enforced exactly: "
        "no number between the bounds is a double below 2^63",
        hint="move the bounds apart, or use numbers below 2^53",
    )


def _next_inside(bound: float, key: str, direction: int) -> float:
    """The bound itself, or the next double inside of it: the library rounds others."""
    exclusive = key.startswith("exclusive")
    if abs(bound) < EXACT_MAX:
        return _next_whole(bound, direction) if exclusive else bound
    try:
        number = float(bound)
    except OverflowError:
        return LARGEST * (2 if bound > 0 else -2)
    outside = number < bound if direction > 0 else number > bound  # exact, unlike a difference
    if outside or (exclusive and number == bound):
        number = nextafter(number, inf * direction)
    return int(number) if abs(number) < inf else LARGEST * (2 if number > 0 else -2)


def _next_whole(bound: float, direction: int) -> float:
    """The next whole number inside of a bound that is excluded, which is one for integers and other numbers alike."""
    whole = int(bound)
    inside = whole if (whole - bound) * direction > 0 else whole + direction
    return inside


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_constants(schema: dict[str, Any]) -> dict[str, Any]:
    """Raise UsageError for a constant that the library would round; the schema itself."""
    for key, values in (("const", [schema.get("const")]), ("enum", schema.get("enum"))):
        for value in values if key in schema and isinstance(values, list) else ():
            if (wrong := _inexact(value)) is not None:
                raise UsageError(
                    f"the JSON schema has {key} {quote_value(wrong)}, which cannot be written exactly: "
                    "it is no double below 2^63",
                    hint="write the number as a text, or leave it to a bound",
                )
    return schema


def _inexact(value: Any) -> int | None:
    """A whole number in a constant that is not exact as a double below 2^63. Not recursive."""
    level = [value]
    while level:
        for one in level:
            if type(one) is int and abs(one) > EXACT_MAX and one != INT64_MAX and not _is_exact(one):
                return one
        level = [inner for one in level for inner in _inner(one)]
    return None


def _is_exact(number: int) -> bool:
    return abs(number) <= LARGEST and int(float(number)) == number


def _inner(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
