"""Makes a plugin, with its settings, from what the user named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import attrs

from spec_core.assembly.discovery import find_plugin, import_plugin
from spec_core.assembly.hooks import implementations
from spec_core.contract.values import Compat
from spec_core.errors import CONSTRUCTION, FOREIGN, PluginError, SpecError, UsageError, message, nearest_names
from spec_core.settings.convert import structure
from spec_core.settings.named import parse_method

DEFAULT_RULE = "coupled"
"""The name of the core's own rule in every run."""
TARGET = "target"
"""The name of the target among the plugins of a run."""


@attrs.frozen
class PluginInstance:
    """A plugin in use: its name in this run, its object, its answer to ``compat``, and its kind when installed."""

    name: str
    plugin: Any
    compat: Compat = Compat()
    kind: str = ""

    @cached_property
    def _options(self) -> dict[str, dict[str, Any]]:
        """{hook: options of its ``@hookimpl``}."""
        return {hook: options for hook, (_, options) in implementations(self.plugin, self.name).items()}

    @property
    def hooks(self) -> frozenset[str]:
        return frozenset(self._options)

    @property
    def proposals(self) -> frozenset[str]:
        """Kinds of proposal it drafts. Default: deterministic, unless it is a controller or marked out of order."""
        if self.compat.drafts is not None:
            return self.compat.drafts
        unsaid = self.kind != "control" and not self._marks and "draft" in self.hooks
        return frozenset({"deterministic"} if unsaid else ())

    @property
    def controls(self) -> bool:
        """Whether it has a draft hook, never drafts and is no rule: called before all methods, so that limits apply."""
        return "draft" in self.hooks and "accept" not in self.hooks and not self.proposals

    @property
    def _marks(self) -> frozenset[str]:
        """Options of its draft hook that change the order of calls."""
        options = self._options.get("draft", {})
        return frozenset(mark for mark in ("tryfirst", "trylast", "wrapper") if options.get(mark))

    def check(self) -> None:
        if not self.hooks:
            raise UsageError(
                f"{self.name} implements no hook: {self.plugin!r}",
                hint="give an instance, and mark its hooks with @hookimpl",
            )
        if self._marks and self.proposals:
            raise UsageError(
                f"{self.name} drafts and is marked tryfirst, trylast or wrapper: that overrides the user's order",
                hint="remove the mark from its draft hook",
            )
        if "trylast" in self._marks:
            raise UsageError(
                f"{self.name} never drafts and its draft hook is marked trylast: no method is left to limit",
                hint="remove the mark: controllers are called first; to read drafts use a wrapper or accept",
            )


def create_plugin(
    spec: Any, plugin_settings: Mapping[str, Mapping[str, Any]], kinds: Iterable[str] = ("method", "control")
) -> PluginInstance:
    """A plugin from ``"name"``, ``"name=FILE"``, ``"name:key=value"``, ``(name, settings or instance)`` or an instance.

    plugin_settings: settings by plugin name.
    """
    if isinstance(spec, tuple):
        name, second = spec
        if not isinstance(second, Mapping):
            return PluginInstance(name, second)
        entry = find_plugin(name, kinds)
        return PluginInstance(
            name,
            construct_plugin(import_plugin(entry), {**plugin_settings.get(name, {}), **second}, name),
            kind=entry.kind,
        )
    if not isinstance(spec, str):
        return PluginInstance(kebab(type(spec).__name__), spec)
    name, own = parse_method(spec)
    entry = find_plugin(name, kinds)
    cls = import_plugin(entry)
    _check_takes_file(cls, name, own.get("file"))
    _check_no_settings(cls, name, own)
    return PluginInstance(name, construct_plugin(cls, {**plugin_settings.get(name, {}), **own}, name), kind=entry.kind)


def _check_takes_file(cls: type, name: str, file: str | None) -> None:
    if file is not None and not (attrs.has(cls) and any(f.name == "file" for f in attrs.fields(cls))):
        raise UsageError(f"{name} has no weights, got the file {file!r}", hint=f"write --method {name}")


def _check_no_settings(cls: type, name: str, own: Mapping[str, str]) -> None:
    """``NAME=FILE:key=value`` would read the settings as part of the file name. Raises UsageError."""
    if set(own) != {"file"} or not attrs.has(cls) or Path(own["file"]).exists():
        return
    declared = "|".join(re.escape(f.name) for f in attrs.fields(cls) if f.init)
    if match := re.fullmatch(rf"(.+?):((?:{declared})=.*)", own["file"], re.DOTALL):
        raise UsageError(
            f"{name}={own['file']}: {name}=FILE takes no settings after the file",
            hint=f"write {name}:file={match[1]},{match[2]}",
        )


def kebab(name: str) -> str:
    """TwoWords becomes two-words."""
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def construct_plugin(cls: type, settings: Mapping[str, Any], plugin: str) -> Any:
    """An instance of a plugin class from its settings. Raises UsageError for unknown or invalid ones."""
    if not attrs.has(cls):
        if settings:
            raise UsageError(f"{plugin} has no settings, got {', '.join(settings)}", hint="leave them out")
        return _instance(cls, {}, plugin)
    declared = setting_fields(cls, plugin)
    for key in settings:
        if key not in declared:
            raise UsageError(f"{plugin} has no setting {key!r}", hint=f"it has: {nearest_names(key, declared)}")
    values = {key: structure(value, declared[key], f"{plugin}.{key}") for key, value in settings.items()}
    return _instance(cls, values, plugin)


def _instance(cls: type, values: Mapping[str, Any], plugin: str) -> Any:
    try:
        return cls(**values)
    except SpecError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{plugin}: {message(error)}", hint=f"`spec settings --method {plugin}` shows its settings"
        ) from error
    except FOREIGN as error:  # a constructor may raise anything
        raise PluginError(plugin, CONSTRUCTION, error) from error


def setting_fields(cls: type, plugin: str) -> dict[str, attrs.Attribute[Any]]:
    """The settings of a plugin class, with resolved types. Other fields may have annotations that do not resolve.

    Raises UsageError with the plugin and the field, if the type of a setting does not resolve.
    """
    fields = {}
    for field in attrs.fields(cls):
        if field.init and not field.name.startswith("_"):
            fields[field.name] = field.evolve(type=_resolved_type(cls, field, plugin))
    return fields


def _resolved_type(cls: type, field: attrs.Attribute[Any], plugin: str) -> Any:
    """The type that a field's annotation names, in the module of the class that declares it."""
    if field.type is None:
        return None
    owner = next(c for c in cls.__mro__ if attrs.has(c) and declares_field(c, field.name))
    only = type(owner.__name__, (), {"__annotations__": {field.name: field.type}, "__module__": owner.__module__})
    try:
        return get_type_hints(only, localns=dict(vars(owner)), include_extras=True)[field.name]
    except Exception as error:  # an annotation may be any expression
        raise UsageError(
            f"{plugin}.{field.name}: its type {field.type!r} does not resolve: {type(error).__name__}: {error}",
            hint=f"in {owner.__module__}, import the type outside of TYPE_CHECKING; a field that is no setting has "
            "init=False, or a name that begins with _",
        ) from error


def declares_field(cls: type, name: str) -> bool:
    """Whether an attrs class declares the field itself. A class that is not decorated shows its base's fields."""
    if "__attrs_attrs__" not in vars(cls):
        return False
    field = attrs.fields_dict(cls).get(name)
    return field is not None and not getattr(field, "inherited", False)  # not in the types of attrs


def planners_of(plugins: Iterable[PluginInstance]) -> frozenset[str]:
    """Names of the plugins that were installed as controllers."""
    return frozenset(chosen.name for chosen in plugins if chosen.kind == "control")
