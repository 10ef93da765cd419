"""Checks of the values that a request has for plugins: ``{plugin: {name: value}}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeAlias

import attrs

from spec_core.contract.fields import ReadOnlyDict
from spec_core.errors import FOREIGN, UsageError, message, nearest_names, quote_value
from spec_core.loop.request.checks import check_text, kind

Readers: TypeAlias = Mapping[str, Mapping[str, Callable[[Any], Any]]]
"""{plugin: its ``Compat.request_values``}."""
NO_READERS: Readers = {}
SIZE_MAX = 1 << 16
"""Max size of all values of a request: characters of texts, and 1 for every value and key."""
DEPTH_MAX = 16
"""Max depth of lists and objects in each other."""
WHOLE_MAX = 1 << 63
PLAIN = "plain JSON values: texts, numbers, true, false, null, lists, and objects with texts as keys"


def check_plugin_values(plugin_values: Any, readers: Readers, switched_off: Mapping[str, str]) -> ReadOnlyDict:
    """{plugin: {name: what the plugin's check returned}}. Raises UsageError.

    switched_off: {plugin: reason} for plugins that failed earlier in this run.
    """
    if not isinstance(plugin_values, Mapping):
        raise UsageError(f"plugin_values is {kind(plugin_values)}", hint="give {plugin: {name: value}}")
    copier = Copier()
    return ReadOnlyDict(
        (plugin, _values_of(plugin, values, readers, switched_off, copier)) for plugin, values in plugin_values.items()
    )


def _values_of(
    plugin: Any, values: Any, readers: Readers, switched_off: Mapping[str, str], copier: Copier
) -> ReadOnlyDict:
    checks = readers.get(plugin) if isinstance(plugin, str) else None
    if not checks:
        reading = sorted(name for name, names in readers.items() if names)
        known = f"plugins that do: {', '.join(reading)}" if reading else "no plugin of this run does"
        raise UsageError(
            f"plugin_values names {quote_value(plugin)}, which reads no values of requests; {known}",
            hint="start the run with that plugin, or leave it out of the request",
        )
    if plugin in switched_off:
        raise UsageError(
            f"plugin_values names {plugin}, switched off in this run: {switched_off[plugin]}",
            hint="leave it out of the request, or start a new run",
        )
    if not isinstance(values, Mapping):
        raise UsageError(f"plugin_values of {plugin!r} is {kind(values)}", hint="give {name: value}")
    for name in values:
        if name not in checks:
            raise UsageError(
                f"plugin {plugin!r} reads no value {quote_value(name)} of requests",
                hint=f"values that it reads: {nearest_names(str(name)[:80], checks)}",
            )
    return ReadOnlyDict((name, _checked_by(plugin, name, checks[name], each, copier)) for name, each in values.items())


def _checked_by(plugin: str, name: str, check: Callable[[Any], Any], value: Any, copier: Copier) -> Any:
    """What the plugin's check makes of a value."""
    where = f"plugin_values of {plugin!r}: {name}"
    own_copy = copier.copy(where, value)
    try:
        return check(own_copy)
    except UsageError as error:
        raise UsageError(f"{where}: {error.reason}", hint=error.hint) from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{where} = {quote_value(value)}: {message(error)}", hint="give another value, or none"
        ) from error
    except FOREIGN as error:
        reason = f"{where}: the plugin's check failed: {type(error).__name__}: {message(error)}"
        raise UsageError(reason, hint="report it to the author of the plugin") from error


@attrs.define
class Copier:
    """Copies the values of one request, so that later changes have no effect, and limits their size.

    room: how much they may still have.
    """

    room: int = SIZE_MAX

    def copy(self, where: str, value: Any, depth: int = 0) -> Any:
        """A copy of a plain JSON value. Raises UsageError for others, and for what is too long or too deep."""
        self._take(where, 1 + (len(value) if isinstance(value, (str, list, tuple, Mapping)) else 0))
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            check_text(where, value)
            return str(value)
        if isinstance(value, (int, float)):
            return self._number(where, value)
        if depth == DEPTH_MAX:
            raise UsageError(f"{where} has more than {DEPTH_MAX} levels", hint="give a flatter value")
        if isinstance(value, (list, tuple)):
            return [self.copy(where, item, depth + 1) for item in value]
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {self.copy(where, key, depth): self.copy(where, item, depth + 1) for key, item in value.items()}
        raise UsageError(f"{where} has a value {kind(value)}", hint=f"give {PLAIN}")

    def _take(self, where: str, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise UsageError(
                f"{where}: the values of a request have more than {SIZE_MAX} characters and values",
                hint="give shorter ones",
            )

    def _number(self, where: str, number: float) -> float:
        if isinstance(number, int):
            if not -WHOLE_MAX <= number < WHOLE_MAX:
                raise UsageError(f"{where} has a whole number of more than 64 bits", hint="give a smaller one")
            return int(number)
        if not isfinite(number):
            raise UsageError(f"{where} has the number {number}", hint="give a finite one")
        return float(number)
