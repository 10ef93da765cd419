"""One table of settings: flag > SPEC_* environment > spec.toml > default; every value knows its origin.

The fields of a plugin are its settings: ``-o echo.n_max=4``, ``[echo] n_max = 4``, ``SPEC_ECHO__N_MAX=4``.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from spec_core.errors import UsageError, nearest, why
from spec_core.structure import structure

FLAG, ENVIRONMENT, FILE, DEFAULT = "flag", "environment", "spec.toml", "default"
PREFIX = "SPEC_"
CONFIG = "SPEC_CONFIG"
"""Names the settings file where it is not ./spec.toml."""
OURS = (CONFIG, "SPEC_DEBUG")
"""Variables that the program reads and that are no settings."""
NEAR = 0.8
"""Likeness from which on a variable of nobody is taken for a misspelt one of ours."""
SCHEME = re.compile(r"[A-Za-z][\w.+-]+:")


def option(default: Any, help: str, low: float | None = None) -> Any:
    """A field of the table: default, help text, and the least value it may have."""
    validator = None if low is None else attrs.validators.ge(low)
    return attrs.field(default=default, metadata={"help": help}, validator=validator)


@attrs.frozen
class RunSettings:
    """Settings of a run that belong to no plugin."""

    draft_max: int = option(16, "longest path any method may draft in a step; 0 is plain decoding", 0)
    nodes_max: int = option(64, "most tokens of a draft tree", 1)
    chunk: int = option(256, "most prompt tokens of one sequence in one forward", 1)
    rows_max: int = option(1024, "most rows of one forward, all sequences together", 1)
    slots: int = option(8, "sequences that run at once", 1)
    reuse: bool = option(True, "continue on the rows of an earlier request with the same beginning")
    on_error: Literal["raise", "isolate"] = option(
        "raise", "what a failing plugin does: end the run, or be switched off for the rest of it"
    )


@attrs.frozen
class LoadSettings:
    """Settings a target is loaded with."""

    device: str = option("auto", "where the target runs: cpu, cuda, or auto")
    dtype: str = option("auto", "float32, bfloat16 or float16; auto is float32 on a CPU, bfloat16 on CUDA")
    threads: int = option(0, "CPU threads; 0 measures how many help when the first model is loaded", 0)
    context: int = option(0, "most positions of a sequence; 0 is what the model declares", 0)
    kernels: str = option("auto", "what executes the model: native, reference, or auto: native on a CPU in float32")
    activations: str = option("int15", "native rows in products with quantised weights: int15, or int8 for speed")
    cache_dtype: str = option("float32", "what native attention caches: float32, float16 or q8")
    weights: str = option("auto", "auto keeps native weights as stored; q8_0 stores those that are floats in 8 bits")


@attrs.frozen
class TextSettings:
    """Settings of one generated text."""

    n: int = option(128, "most tokens to generate", 0)
    seed: int = option(0, "64-bit seed; equal seeds give equal texts with every method")
    temperature: float = option(0.0, "0 is greedy", 0)
    top_k: int = option(0, "keep the k most likely tokens; 0 is off", 0)
    top_p: float = option(1.0, "keep the most likely tokens up to this mass")
    min_p: float = option(0.0, "drop tokens below this share of the most likely one", 0)
    repetition_penalty: float = option(1.0, "divides the logits of tokens that occurred")
    presence_penalty: float = option(0.0, "subtracted from tokens that occurred in the output")
    frequency_penalty: float = option(0.0, "subtracted per occurrence in the output")


@attrs.frozen
class ChoiceSettings:
    """What runs."""

    model: str | None = option(None, "a GGUF file, a Hugging Face directory, or scheme:location such as zoo:pico")
    methods: tuple[str, ...] = option((), "methods in the order of asking, NAME or NAME=FILE")
    rule: str | None = option(None, "acceptance rule; the default is lossless and seed-coupled")
    rollback: str | None = option(None, "owner of recurrent state, where several are installed")


TABLES: tuple[type, ...] = (ChoiceSettings, RunSettings, LoadSettings, TextSettings)


@attrs.frozen
class Setting:
    """A resolved value and the layer it came from."""

    name: str
    value: Any
    origin: str
    help: str = ""


@attrs.frozen
class Settings:
    """Everything resolved, frozen. Plugin settings have dotted names."""

    table: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.table[name].value

    def build(self, cls: type) -> Any:
        """One of the tables as a value."""
        return cls(**{field.name: self[field.name] for field in attrs.fields(cls)})

    def given(self, plugin: str) -> dict[str, Any]:
        """What was set for a plugin, by field name, not yet of the field's type."""
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


def fields() -> dict[str, attrs.Attribute]:
    """Every core setting by name."""
    return {field.name: field for table in TABLES for field in attrs.fields(attrs.resolve_types(table))}


def resolve(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    file: Mapping[str, Any],
    plugins: Iterable[str] = (),
) -> Settings:
    """Merge the layers, strongest first, and remember where each value came from. Raises UsageError.

    flags, file: by name, plugin settings dotted or nested in a table. plugins: names of installed plugins.
    """
    known = fields()
    plugins = set(plugins)
    layers = {FLAG: flatten(flags), ENVIRONMENT: from_environment(environ, plugins), FILE: flatten(file)}
    for origin, layer in layers.items():
        for name in layer:
            _check_known(name, known, plugins, origin)
    names = [*known, *sorted({n for layer in layers.values() for n in layer if "." in n})]
    return Settings({name: _pick(name, layers, known) for name in names})


def _pick(name: str, layers: Mapping[str, Mapping[str, Any]], known: Mapping[str, attrs.Attribute]) -> Setting:
    origin = next((o for o, layer in layers.items() if name in layer), DEFAULT)
    field = known.get(name)
    if field is None:
        return Setting(name, layers[origin][name], origin)
    value = field.default if origin == DEFAULT else structure(layers[origin][name], field, name)
    return Setting(name, value, origin, field.metadata["help"])


def flatten(layer: Mapping[str, Any]) -> dict[str, Any]:
    """{"echo": {"n_max": 4}} -> {"echo.n_max": 4}; values of None are no values."""
    flat: dict[str, Any] = {}
    for name, value in layer.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": v for key, v in value.items() if v is not None})
        elif value is not None:
            flat[name] = value
    return flat


def from_environment(environ: Mapping[str, str], plugins: Iterable[str]) -> dict[str, str]:
    """SPEC_DRAFT_MAX -> draft_max; SPEC_MY_ECHO__P_MIN -> my-echo.p_min. Other programs use the prefix too."""
    plugins = tuple(plugins)
    names = {variable: _named(variable, plugins) for variable in environ if variable.startswith(PREFIX)}
    return {name: environ[variable] for variable, name in names.items() if name is not None}


def _named(variable: str, plugins: Iterable[str]) -> str | None:
    """The setting that a variable is about, or None where it is nobody's."""
    plugin, dunder, key = variable.removeprefix(PREFIX).partition("__")
    if not dunder:
        return plugin.lower() if plugin.lower() in fields() else None
    owner = next((name for name in plugins if _shouted(name) == plugin), None)
    return f"{owner}.{key.lower()}" if owner else None


def _shouted(name: str) -> str:
    return name.upper().replace("-", "_")


def misspelt(environ: Mapping[str, str], plugins: Iterable[str]) -> dict[str, str]:
    """{variable: the name it is near}: variables with our prefix that are ignored, and probably were meant for us."""
    plugins = tuple(plugins)
    core = [*map(_shouted, fields()), *(own.removeprefix(PREFIX) for own in OURS)]
    found = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in OURS or _named(variable, plugins):
            continue
        owner, dunder, key = variable.removeprefix(PREFIX).partition("__")
        known = [*map(_shouted, plugins)] if dunder else core
        if near := difflib.get_close_matches(owner, known, n=1, cutoff=NEAR):
            found[variable] = PREFIX + near[0] + dunder + key
    return found


def read_file(path: Path | None = None, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The settings file: the one named, or $SPEC_CONFIG, or ./spec.toml if there is one. Its paths are its own."""
    named = path or ((environ or {}).get(CONFIG) and Path((environ or {})[CONFIG]))
    file = Path(named) if named else Path("spec.toml")
    if not named and not file.exists():
        return {}
    try:
        return anchored(tomllib.loads(file.read_text(encoding="utf-8")), file.parent)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{file}: {why(error)}", mend="mend the file; `spec settings --toml` prints one that works"
        ) from error


def anchored(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A file's table with its relative paths made relative to where it lies: model, NAME=FILE, and file of a plugin."""
    made = dict(table)
    if isinstance(model := made.get("model"), str):
        made["model"] = _anchored(model, folder)
    methods = made.get("methods")
    if isinstance(methods, str):
        methods = methods.split(",")
    if isinstance(methods, list):
        made["methods"] = [_anchored_file(m, folder) if isinstance(m, str) else m for m in methods]
    for name, own in made.items():
        if isinstance(own, Mapping) and isinstance(file := own.get("file"), str):
            made[name] = {**own, "file": _anchored(file, folder)}
    return made


def _anchored_file(spec: str, folder: Path) -> str:
    """NAME=FILE; in a chain every FILE."""
    name, equals, rest = spec.partition("=")
    if not equals:
        return spec
    file, plus, more = rest.partition("+")
    return f"{name}={_anchored(file, folder)}{plus}{_anchored_file(more, folder)}"


def _anchored(path: str, folder: Path) -> str:
    """What begins with a scheme, as zoo:pico does, is the loader's to read."""
    here = folder / path
    return str(here) if here.exists() or not SCHEME.match(path) else path


def _check_known(name: str, known: Iterable[str], plugins: set[str], origin: str) -> None:
    plugin, dot, _ = name.rpartition(".")
    if not dot and name not in known:
        raise UsageError(f"unknown setting {name!r} ({origin})", mend=f"known settings: {nearest(name, known)}")
    if dot and plugin not in plugins:
        raise UsageError(
            f"{name}: no plugin {plugin!r} is installed ({origin})", mend=f"installed: {nearest(plugin, plugins)}"
        )
