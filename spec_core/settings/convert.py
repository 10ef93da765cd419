"""Converts text from flags, environment and files to the types of fields."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs
import cattrs

from spec_core.errors import SpecError, UsageError, message, quote_value

TRUE, FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def _bool(value: Any, _: type) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in TRUE | FALSE:
        return str(value).lower() in TRUE
    raise ValueError("give true or false")


def _int(value: Any, _: type) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("give a whole number")
    try:
        return int(value)
    except ValueError as error:
        raise ValueError("give a whole number") from error


def _float(value: Any, _: type) -> float:
    if isinstance(value, bool):
        raise ValueError("give a number")
    try:
        return float(value)
    except ValueError as error:
        raise ValueError("give a number") from error


def _text(value: Any, _: type) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")
    return value


def _names(value: Any, kind: Any) -> tuple[Any, ...]:
    """Items of a tuple, which may be one text with commas."""
    items = [v for v in value.split(",") if v] if isinstance(value, str) else list(value)
    return tuple(converter.structure(item, get_args(kind)[0]) for item in items)


converter = cattrs.Converter()
converter.register_structure_hook(bool, _bool)


def _origin(kind: Any) -> Any:
    """The class of a generic type, such as tuple; None of a class."""
    return get_origin(kind)


converter.register_structure_hook(int, _int)
converter.register_structure_hook(float, _float)
converter.register_structure_hook(str, _text)
converter.register_structure_hook(Path, lambda value, _: Path(value))
converter.register_structure_hook_func(lambda kind: _origin(kind) is tuple, _names)


def _optional(value: Any, kind: Any) -> Any:
    if value is None or value in ("none", "null"):
        return None
    return converter.structure(value, next(k for k in get_args(kind) if k is not type(None)))


converter.register_structure_hook_func(
    lambda kind: _origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind), _optional
)


def structure(value: Any, field: attrs.Attribute[Any], name: str) -> Any:
    """A value converted to the field's type and checked by its validator. Raises UsageError with the setting's name."""
    try:
        converted = converter.structure(value, field.type) if field.type else value
        if field.validator is not None:
            field.validator(None, field, converted)
    except SpecError:
        raise
    except Exception as error:
        raise UsageError(
            f"{name} = {quote_value(value)} does not fit: {_expectation(field, value, error)}",
            hint="`spec settings` shows every setting and its type",
        ) from error
    return converted


def _expectation(field: attrs.Attribute[Any], value: Any, error: Exception) -> str:
    """Values that the field accepts: the validator's message without the name and the value, which it repeats."""
    if get_origin(field.type) is Literal:
        return f"give one of {', '.join(map(str, get_args(field.type)))}"
    while inner := getattr(error, "exceptions", None):
        error = inner[0]
    text = message(error) or f"it must be {field.type}"
    if text.startswith(f"'{field.name}' must"):
        text = re.sub(r"(: | \(got ).*$", "", "it" + text.removeprefix(f"'{field.name}'"), flags=re.S)
    return text
