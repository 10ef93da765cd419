"""Merges settings: flag > SPEC_* environment > spec.toml > default; every value records its origin.

The fields of a plugin are its settings: ``-o echo.n_max=4``, ``[echo] n_max = 4``, ``SPEC_ECHO__N_MAX=4``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from spec_core.errors import UsageError, nearest_names
from spec_core.settings.convert import structure
from spec_core.settings.environment import from_environment
from spec_core.settings.tables import core_fields

FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "spec.toml", "default"


@attrs.frozen
class Setting:
    """A resolved value and the layer that it came from."""

    name: str
    value: Any
    origin: str
    help: str = ""


@attrs.frozen
class Settings:
    """All resolved settings, frozen. Plugin settings have dotted names."""

    table: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.table[name].value

    def build(self, cls: type) -> Any:
        """One of the tables, filled with these settings."""
        return cls(**{field.name: self[field.name] for field in attrs.fields(cls)})

    def values_of(self, plugin: str) -> dict[str, Any]:
        """Settings of a plugin, by field name, not yet converted to the field's type."""
        return {n.partition(".")[2]: s.value for n, s in self.table.items() if n.startswith(plugin + ".")}

    def as_json(self) -> dict[str, dict[str, Any]]:
        return {name: {"value": s.value, "origin": s.origin} for name, s in sorted(self.table.items())}

    def as_toml(self) -> str:
        """A file that reproduces these settings."""
        plain = [f"{n} = {_toml(s.value)}" for n, s in self.table.items() if "." not in n and s.value is not None]
        tables: dict[str, list[str]] = {}
        for name, s in sorted(self.table.items()):
            plugin, dot, key = name.rpartition(".")
            if dot and s.value is not None:
                tables.setdefault(plugin, []).append(f"{key} = {_toml(s.value)}")
        blocks = [f"\n[{plugin}]\n" + "\n".join(lines) for plugin, lines in tables.items()]
        return "\n".join(plain + blocks) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    escaped = "".join(c if c not in '"\\' and c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return f'"{escaped}"'


def resolve_layers(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: Mapping[str, Any],
    plugins: Iterable[str] = (),
) -> Settings:
    """Merge the layers, strongest first, and record where each value came from. Raises UsageError.

    flags, file: by name; plugin settings dotted or nested in a table. plugins: names of installed plugins.
    """
    known = core_fields()
    plugins = set(plugins)
    layers = {FLAG: flatten_layer(flags), ENVIRONMENT: from_environment(environ, plugins), FILE: flatten_layer(file)}
    for origin, layer in layers.items():
        for name in layer:
            _check_known(name, known, plugins, origin)
    names = [*known, *sorted({n for layer in layers.values() for n in layer if "." in n})]
    return Settings({name: _pick(name, layers, known) for name in names})


def _pick(name: str, layers: Mapping[str, Mapping[str, Any]], known: Mapping[str, attrs.Attribute[Any]]) -> Setting:
    origin = next((o for o, layer in layers.items() if name in layer), DEFAULT)
    field = known.get(name)
    if field is None:
        return Setting(name, layers[origin][name], origin)
    value = field.default if origin == DEFAULT else structure(layers[origin][name], field, name)
    return Setting(name, value, origin, field.metadata["help"])


def flatten_layer(layer: Mapping[str, Any]) -> dict[str, Any]:
    """{"echo": {"n_max": 4}} -> {"echo.n_max": 4}; entries with the value None are dropped."""
    flat: dict[str, Any] = {}
    for name, value in layer.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": v for key, v in value.items() if v is not None})
        elif value is not None:
            flat[name] = value
    return flat


def _check_known(name: str, known: Iterable[str], plugins: set[str], origin: str) -> None:
    plugin, dot, _ = name.rpartition(".")
    if not dot and name not in known:
        raise UsageError(f"unknown setting {name!r} ({origin})", hint=f"known settings: {nearest_names(name, known)}")
    if dot and plugin not in plugins:
        raise UsageError(
            f"{name}: no plugin {plugin!r} is installed ({origin})", hint=f"installed: {nearest_names(plugin, plugins)}"
        )
