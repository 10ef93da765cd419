"""Limits of a schema or grammar, checked before it is compiled: it may come from a stranger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec_core import UsageError
from spec_core.errors import quote_value
from spec_grammar.references import lark_depth, schema_depth

BYTES_MAX = 256 * 1024
DEPTH_MAX = 64
"""Nested objects and lists of a schema."""

INTEGER_MAX = (1 << 63) - 1
NOTES = ("default", "examples", "example")
"""Keywords whose values are only shown."""
PATH_MAX = 2000
"""Rules that refer to one another in a chain, or nested values and references of a schema."""


def check_size(what: str, text: str) -> None:
    """Raise UsageError for a text that is too long, or that is not UTF-8."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} has half a surrogate pair", hint="give a text that can be written as UTF-8"
        ) from error
    if size > BYTES_MAX:
        raise UsageError(f"{what} has {size} bytes, the limit is {BYTES_MAX}", hint="give a smaller one")


def check_depth(what: str, schema: Any) -> None:
    """Raise UsageError for a schema that is nested too deeply. Not recursive, since the depth is what is unknown."""
    level, depth = [schema], 0
    while level := [inner for outer in level for inner in _inner(outer)]:
        depth += 1
        if depth > DEPTH_MAX:
            raise UsageError(f"{what} is nested more than {DEPTH_MAX} levels deep", hint="give a flatter one")


def check_numbers(what: str, schema: Any) -> None:
    """Raise UsageError for whole numbers that the compiler would cut. schema: not nested deeply."""
    level = [schema]
    while level:
        wrong = next((v for v in level if isinstance(v, int) and not -INTEGER_MAX - 1 <= v <= INTEGER_MAX), None)
        if wrong is not None:
            raise UsageError(
                f"{what} has {quote_value(wrong)}, beyond 64 bits", hint="give a smaller number, or one with a point"
            )
        level = [inner for outer in level for inner in _inner_without_notes(outer)]


def check_references(what: str, grammars: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError for a chain of references that is too long. grammars: as llguidance reads them."""
    for grammar in grammars:
        text = grammar.get("lark_grammar")
        depth = schema_depth(grammar["json_schema"]) if text is None else lark_depth(text)
        if depth > PATH_MAX:
            raise UsageError(
                f"{what} has a chain of {depth} references and nested parts, the limit is {PATH_MAX}",
                hint="let fewer rules refer to one another",
            )


def _inner(value: Any) -> list[Any]:
    """The values inside a value; a text or number has none."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _inner_without_notes(value: Any) -> list[Any]:
    """The same, without values of keywords that demand nothing."""
    if not isinstance(value, dict):
        return _inner(value)
    return [inner for key, inner in value.items() if key not in NOTES or isinstance(inner, dict)]
