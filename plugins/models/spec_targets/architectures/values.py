"""Numbers of a config.json, which may be damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_core.errors import UsageError


def read_int(raw: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    """A positive number, or 0 where that is the default. Raises UsageError."""
    value = raw.get(key)
    value = default if value is None else value
    if default == 0 and value == 0:
        return 0
    if type(value) is not int or not 0 < value < 1 << 31:
        raise UsageError(
            f"{where}: config.json has {key} = {str(value)[:40]!r}", hint="a positive whole number is needed"
        )
    return value


def read_float(raw: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    """A positive number. Raises UsageError."""
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e18:
        raise UsageError(f"{where}: config.json has {key} = {str(value)[:40]!r}", hint="a positive number is needed")
    return float(value)
