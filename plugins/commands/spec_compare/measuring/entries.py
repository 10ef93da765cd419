"""The contenders that the user asked for: every --method, every ``[[contender]]`` of a file, and their sweeps."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import attrs
from spec_commands import common
from spec_commands.common import Settings

from spec_compare.figures.titles import title, value_text
from spec_core.commands import (
    DEFAULT,
    format_method,
    name_of,
    parse_method,
    resolve_layers,
    resolve_paths,
    setting_owners,
    split_methods,
)
from spec_core.errors import UsageError, error_message

CONTENDER = "contender"
"""Origin of a setting: a table of the file of contenders."""
SWEEP = "sweep"
"""Origin of a setting: a sweep."""
TARGET = "--target"
"""Origin of a setting: the option ``--target``."""
OWN = ("name", "sweep")
"""Keys of a ``[[contender]]`` that are no settings."""
EXAMPLE = 'write [[contender]] with methods = ["NAME"], settings as in spec.toml, and name = "..." if you like'


@attrs.frozen
class ContenderEntry:
    """A contender before anything is loaded.

    name: as the user wrote it, None to make one. settings: with what this contender alone sets. methods: a chain.
    suffix: (setting, value) that a sweep or a table set, for the name. origins: {setting of a plugin: where it came
    from}.
    """

    settings: Settings
    methods: list[str]
    name: str | None = None
    suffix: tuple[tuple[str, Any], ...] = ()
    origins: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def plugins(self) -> set[str]:
        """Names of the plugins that it names."""
        named = [self.settings[kind] for kind in ("rule", "rollback", "control")]
        return {name_of(part) for part in [*self.methods, *(n for n in named if n)]}

    def origin(self, key: str) -> str:
        """Origin of a setting of a plugin."""
        setting = self.settings.table.get(key)
        return self.origins.get(key) or (DEFAULT if setting is None else setting.origin)


def entries(
    settings: Settings,
    file: Path | None,
    sweeps: Iterable[str],
    models: Iterable[str] = (),
    lengths: Mapping[int, Mapping[str, str]] | None = None,
) -> list[ContenderEntry]:
    """All contenders except plain decoding, in the order of the command, then of the file. Raises UsageError.

    models: further ones, on which every contender runs too. lengths: {draft length: settings of the rule} to replay.
    """
    listed = [_method(settings, spec) for spec in refuse_repeats(settings["methods"])]
    listed += [] if file is None else [one for table in tables(file) for one in contender(settings, table, file)]
    sweep = dict(map(parsed_sweep, sweeps))
    if file is None and not listed and (sweep or models):
        listed = [ContenderEntry(settings, [])]
    swept = swept_all(listed, sweep)
    replayed = swept if lengths is None else [one for entry in swept for one in replay_entries(entry, lengths)]
    return on_models(replayed, once_each(settings, models))


def replay_entries(entry: ContenderEntry, lengths: Mapping[int, Mapping[str, str]]) -> list[ContenderEntry]:
    """The contender once per draft length, whose acceptance length its rule keeps to. Raises UsageError."""
    rule = entry.settings["rule"]
    if rule is None:
        raise UsageError(
            "--golden needs a rule that keeps to an acceptance length",
            hint="add --rule synthetic: its text is not real",
        )
    name, own = parse_method(rule)
    return [
        change_settings(entry, {"draft_max": k, "rule": format_method(name, {**own, **settings})}, SWEEP)
        for k, settings in lengths.items()
    ]


def once_each(settings: Settings, models: Iterable[str]) -> list[str]:
    """The further models. Raises UsageError for one that is named twice."""
    for model, times in Counter([settings["model"], *models]).items():
        if times > 1:
            raise UsageError(f"the model {model} was passed {times} times", hint="pass it once, with -m or --target")
    return list(models)


def on_models(unplaced: list[ContenderEntry], models: Iterable[str]) -> list[ContenderEntry]:
    """Every contender on its own model, then on each of these; one whose table names a model stays on that one."""
    return [
        one
        for entry in unplaced
        for one in (entry, *(change_settings(entry, {"model": m}, TARGET) for m in models if not _has_its_own(entry)))
    ]


def _has_its_own(entry: ContenderEntry) -> bool:
    return any(key == "model" for key, _ in entry.suffix) or entry.settings.table["model"].origin == CONTENDER


def refuse_repeats(specs: Iterable[str]) -> tuple[str, ...]:
    """Raise UsageError for a method that is passed twice."""
    for spec, times in Counter(specs).items():
        if times > 1:
            raise UsageError(f"--method {spec} was passed {times} times", hint="pass each contender once")
    return tuple(specs)


def _method(settings: Settings, spec: str) -> ContenderEntry:
    known, origin = common.installed_names(), settings.table["methods"].origin
    name, chain = split_name(spec, known)
    methods = split_methods(chain, known)
    return ContenderEntry(settings, methods, name, origins={key: origin for part in methods for key in _keys(part)})


def split_name(spec: str, known: Container[str]) -> tuple[str | None, str]:
    """(name, chain) of ``NAME=CHAIN``; no name where the part before the sign is a method. known: methods."""
    name, sign, chain = spec.partition("=")
    is_named = sign and not set(name) & set(":+") and name not in known and name_of(chain.partition("+")[0]) in known
    return (name, chain) if is_named else (None, spec)


def _keys(part: str) -> list[str]:
    name, own = parse_method(part)
    return [f"{name}.{key}" for key in own]


def tables(file: Path) -> list[dict[str, Any]]:
    """The ``[[contender]]`` tables of a file, relative paths resolved against it. Raises UsageError."""
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error_message(error)}", hint=EXAMPLE) from error
    if unknown := set(read) - {CONTENDER}:
        raise UsageError(f"{file}: {min(unknown)!r} is not a [[contender]]", hint=EXAMPLE)
    listed = read.get(CONTENDER)
    if not isinstance(listed, list) or not listed or not all(isinstance(table, dict) for table in listed):
        raise UsageError(f"{file} has no [[contender]]", hint=EXAMPLE)
    return [resolve_paths(table, file.parent) for table in listed]


def contender(settings: Settings, table: Mapping[str, Any], file: Path) -> list[ContenderEntry]:
    """The contenders of one table: several if it has a sweep. Raises UsageError that names the file."""
    name, sweep = table.get("name"), table.get("sweep", {})
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise UsageError(f"{file}: the name {name!r} is not a text", hint=EXAMPLE)
    if not isinstance(sweep, Mapping):
        raise UsageError(f"{file}: sweep is not a table", hint='write sweep = { "ngram.draft_max" = [4, 8] }')
    own = {key: value for key, value in table.items() if key not in OWN}
    methods = _methods(own.pop("methods", []), file)
    try:
        entry = change_settings(ContenderEntry(settings, methods, name), _flat(own), CONTENDER)
        return combine_values(
            attrs.evolve(entry, suffix=() if name else entry.suffix), _list_values(_flat(sweep), file)
        )
    except UsageError as error:
        where = f"{file}, contender {name or title(methods)!r}"
        raise UsageError(f"{where}: {error.reason}", hint=error.hint) from error


def _methods(value: Any, file: Path) -> list[str]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise UsageError(f"{file}: methods = {value!r:.60} is not a list of names", hint=EXAMPLE)
    return [part for one in listed for part in split_methods(one, common.installed_names())]


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """{"ngram": {"draft_max": 4}} as {"ngram.draft_max": 4}."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat


def _list_values(sweep: Mapping[str, Any], file: Path) -> dict[str, list[Any]]:
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"sweep of {key}: {values!r:.40} is not a list of values", hint=f"write {key} = [4, 8]")
    return dict(sweep)


def parsed_sweep(text: str) -> tuple[str, list[Any]]:
    """``KEY=VALUE,VALUE`` of the command line. Raises UsageError."""
    key, equals, values = text.partition("=")
    listed = [value for value in values.split(",") if value]
    if not key or not equals or not listed:
        raise UsageError(f"--sweep {text!r} must be KEY=VALUE,VALUE", hint="write --sweep ngram.draft_max=4,8,16")
    return key, listed


def swept_all(unswept: list[ContenderEntry], sweep: Mapping[str, list[Any]]) -> list[ContenderEntry]:
    """Every contender with every combination of the values that concern it.

    Raises UsageError for a sweep of a plugin that no contender has.
    """
    for key in sweep:
        plugin, dot, _ = key.rpartition(".")
        if dot and not any(plugin in entry.plugins for entry in unswept):
            raise UsageError(f"--sweep {key}: no contender uses {plugin!r}", hint=f"add --method {plugin}")
    return [one for entry in unswept for one in combine_values(entry, _concerning(entry, sweep))]


def _concerning(entry: ContenderEntry, sweep: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {k: values for k, values in sweep.items() if "." not in k or k.rpartition(".")[0] in entry.plugins}


def combine_values(entry: ContenderEntry, sweep: Mapping[str, list[Any]]) -> list[ContenderEntry]:
    """The contender once for each combination of values."""
    return [change_settings(entry, dict(zip(sweep, values, strict=True)), SWEEP) for values in product(*sweep.values())]


def change_settings(entry: ContenderEntry, values: Mapping[str, Any], origin: str) -> ContenderEntry:
    """The contender with other settings. Raises UsageError for an unknown name or a value that does not fit.

    Settings of a method of its chain become a part of the method's name, as in ``NAME:key=value``.
    """
    of_methods = {key: value for key, value in values.items() if _concerns(key, entry.methods)}
    others = {key: value for key, value in values.items() if key not in of_methods}
    resolve_layers(dict(values), {}, {}, setting_owners())
    methods = [_with(part, of_methods) for part in entry.methods]
    shown = of_methods if entry.name else {}
    suffix = tuple({**shown, **others}.items())
    return attrs.evolve(
        entry,
        methods=methods,
        settings=override_settings(entry.settings, others, origin),
        suffix=entry.suffix + suffix,
        origins={**entry.origins, **dict.fromkeys(of_methods, origin)},
    )


def _concerns(key: str, methods: list[str]) -> bool:
    plugin, dot, _ = key.rpartition(".")
    return bool(dot) and plugin in map(name_of, methods)


def _with(part: str, values: Mapping[str, Any]) -> str:
    """A method with settings of its own added."""
    name, own = parse_method(part)
    more = {k.rpartition(".")[2]: value_text(v) for k, v in values.items() if k.rpartition(".")[0] == name}
    return format_method(name, own | more)


def override_settings(settings: Settings, values: Mapping[str, Any], origin: str) -> Settings:
    """The settings with other values, checked. Raises UsageError."""
    resolved = resolve_layers(dict(values), {}, {}, setting_owners())
    return Settings({**settings.table, **{k: attrs.evolve(resolved.table[k], origin=origin) for k in values}})
