"""Where the schemas in a JSON schema are: keywords whose values are schemas, and keywords whose values are data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose values are schemas by name."""
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords whose values are lists of schemas."""
SINGLE = (
    "items", "additionalProperties", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "contentSchema",
)  # fmt: skip
"""Keywords whose value is a schema; ``items`` may be a list of them."""


def map_schemas(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema with every schema in it changed, the innermost first. Data, such as ``const``, is left as it is."""
    if isinstance(schema, list):
        return [map_schemas(one, change) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return change({key: _map_value(key, value, change) for key, value in schema.items()})


def _map_value(key: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if key in NAMED and isinstance(value, Mapping):
        return {name: map_schemas(one, change) for name, one in value.items()}
    if key in LISTED or key in SINGLE:
        return map_schemas(value, change)
    return value
