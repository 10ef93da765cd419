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


def check_plugin_values(given: Any, readers: Readers, switched_off: Mapping[str, str]) -> ReadOnlyDict:
    """{plugin: {name: what the plugin's check returned}}. Raises UsageError.

    switched_off: {plugin: reason} for plugins that failed earlier in this run.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"plugin_values is {kind(given)}", hint="give {plugin: {name: value}}")
    copier = Copier()
    return ReadOnlyDict(
        (plugin, _values_of(plugin, values, readers, switched_off, copier)) for plugin, values in given.items()
    )


def _values_of(
    plugin: Any, given: Any, readers: Readers, switched_off: Mapping[str, str], copier: Copier
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
    if not isinstance(given, Mapping):
        raise UsageError(f"plugin_values of {plugin!r} is {kind(given)}", hint="give {name: value}")
    for name in given:
        if name not in checks:
            raise UsageError(
                f"plugin {plugin!r} reads no value {quote_value(name)} of requests",
                hint=f"values that it reads: {nearest_names(str(name)[:80], checks)}",
            )
    return ReadOnlyDict((name, _checked_by(plugin, name, checks[name], value, copier)) for name, value in given.items())


def _checked_by(plugin: str, name: str, check: Callable[[Any], Any], given: Any, copier: Copier) -> Any:
    """What the plugin's check makes of a value."""
    where = f"plugin_values of {plugin!r}: {name}"
    value = copier.copy(where, given)
    try:
        return check(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.reason}", hint=error.hint) from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{where} = {quote_value(given)}: {message(error)}", hint="give another value, or none"
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

    def copy(self, where: str, given: Any, depth: int = 0) -> Any:
        """A copy of a plain JSON value. Raises UsageError for others, and for what is too long or too deep."""
        self._take(where, 1 + (len(given) if isinstance(given, (str, list, tuple, Mapping)) else 0))
        if given is None or isinstance(given, bool):
            return given
        if isinstance(given, str):
            check_text(where, given)
            return str(given)
        if isinstance(given, (int, float)):
            return self._number(where, given)
        if depth == DEPTH_MAX:
            raise UsageError(f"{where} has more than {DEPTH_MAX} levels", hint="give a flatter value")
        if isinstance(given, (list, tuple)):
            return [self.copy(where, value, depth + 1) for value in given]
        if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
            return {self.copy(where, key, depth): self.copy(where, value, depth + 1) for key, value in given.items()}
        raise UsageError(f"{where} has a value {kind(given)}", hint=f"give {PLAIN}")

    def _take(self, where: str, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise UsageError(
                f"{where}: the values of a request have more than {SIZE_MAX} characters and values",
                hint="give shorter ones",
            )

    def _number(self, where: str, given: float) -> float:
        if isinstance(given, int):
            if not -WHOLE_MAX <= given < WHOLE_MAX:
                raise UsageError(f"{where} has a whole number of more than 64 bits", hint="give a smaller one")
            return int(given)
        if not isfinite(given):
            raise UsageError(f"{where} has the number {given}", hint="give a finite one")
        return float(given)
