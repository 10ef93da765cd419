"""The API reference in Markdown, from docstrings: every public name with its fields and methods."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from textwrap import dedent
from types import ModuleType
from typing import Any

import attrs

import spec_core
from spec_core import commands, host, testing, toolkit

GROUPS = {
    "A run": (
        "load",
        "load_tokenizer",
        "prepare",
        "Run",
        "RunSettings",
        "Request",
        "Sampling",
        "Constraint",
        "Matcher",
        "Emitted",
        "Result",
    ),
    "What a plugin returns": ("Compat", "Needs", "Refusal", "Draft", "Verdict", "MethodChoice"),
    "What a hook receives": (
        "Step",
        "StepRecord",
        "DraftAttempt",
        "DraftPlan",
        "Limit",
        "Part",
        "Piece",
        "Batch",
        "TargetOutput",
        "Rows",
        "Span",
    ),
    "Sequences": ("Sequence", "EncodedPrompt", "PicturedPrompt", "Slot", "Stash", "StashKey"),
    "Targets": ("Target", "TargetInfo", "Tokenizer"),
    "Errors": ("SpecError", "UsageError", "Refused", "PluginError"),
}
"""Names of ``spec_core`` in reading order. ``CONTRACT`` and ``hookimpl`` are described in the introduction."""
INTRODUCTION = """\
The exports of `spec_core`, `spec_core.toolkit`, `spec_core.host`, `spec_core.testing` and `spec_core.commands`.
The text is that of their docstrings.
The arguments of the hooks are described in [hooks](hooks.md); what stays stable in [contract](contract.md).
`spec_core.CONTRACT` is the version of the contract, and `spec_core.hookimpl` marks a method of a plugin as a hook.
In shapes, K is the number of drafted tokens of one sequence, R rows of one forward, V vocabulary size, D width."""
PROPERTIES = (property, cached_property)
PLAIN = (type(None), bool, int, float, str)
"""Types whose defaults are shown literally."""


def api() -> str:
    """The page: a section per group, then the toolkit, the host, the test kit, and the functions for commands."""
    parts = ["# Python API", INTRODUCTION]
    for title, names in GROUPS.items():
        parts += [f"## {title}", *(describe(name, getattr(spec_core, name)) for name in names)]
    for package in (toolkit, host, testing, commands):
        parts += [f"## {package.__name__}", inspect.getdoc(package) or ""]
        parts += [describe(name, value) for name, value in exported_names(package)]
    return "\n\n".join(parts) + "\n"


def exported_names(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names of ``__all__``; without it, the public names that the modules of the package define."""
    if hasattr(package, "__all__"):
        yield from ((name, getattr(package, name)) for name in package.__all__)
        return
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
                yield name, value


def describe(name: str, value: Any) -> str:
    """The entry of a class, a function or a constant."""
    value = inspect.unwrap(value)  # of a cache
    if inspect.isclass(value):
        return "\n\n".join(filter(None, [f"### {name}", *_class(name, value)]))
    if inspect.isfunction(value):
        return f"### {name}\n\n{code(signature(name, value))}\n\n{prose(value)}"
    return f"### {name}\n\n`{value!r}`"


def _class(name: str, cls: type) -> Iterator[str]:
    if inspect.isfunction(init := vars(cls).get("__init__")) and not (_has_generated_init(cls) or _is_protocol(cls)):
        yield code(signature(name, init))
    fields = dict(_fields(cls))
    text, described = split(inspect.cleandoc(cls.__doc__ or ""), [*fields, *_parameters(cls)])
    yield text
    yield "\n".join(_bullets(fields, {**_help_texts(cls), **described}))
    for member, value in _members(cls):
        yield f"**{code(member_signature(member, value))}**\n\n{prose(value)}".strip()


def _has_generated_init(cls: type) -> bool:
    """Whether attrs generated the constructor, so that its arguments are the fields."""
    return attrs.has(cls) and "__attrs_init__" not in vars(cls)


def _is_protocol(cls: type) -> bool:
    return getattr(cls, "_is_protocol", False)


def _help_texts(cls: type) -> dict[tuple[str, ...], str]:
    """Help texts of fields that are settings."""
    fields = attrs.fields(cls) if attrs.has(cls) else ()
    return {(f.name,): f.metadata["help"] for f in fields if "help" in f.metadata}


def _bullets(fields: dict[str, str], described: dict[tuple[str, ...], str]) -> Iterator[str]:
    """Fields in order, with those described together in one line; then the other described names."""
    groups = {name: group for group in described for name in group}
    shown = dict.fromkeys([*(groups.get(name, (name,)) for name in fields), *described])
    for group in shown:
        names = ", ".join(code(fields.get(name, name)) for name in group)
        yield f"- {names}" + (f": {described[group]}" if group in described else "")


def _fields(cls: type) -> Iterator[tuple[str, str]]:
    """Public fields with type and default; of a protocol its annotations."""
    if not attrs.has(cls):
        names = [] if issubclass(cls, Exception) else vars(cls).get("__annotations__", {})
        yield from ((name, f"{name}: {names[name]}") for name in names if not name.startswith("_"))
        return
    for field in attrs.fields(cls):
        if not field.name.startswith("_"):
            yield field.name, f"{field.name}: {_type_text(_source_type(cls, field))}{_default(field.default)}"


def _source_type(cls: type, field: Any) -> Any:
    """A field's type as written in the source, which attrs may have resolved."""
    return next(
        (k.__annotations__[field.name] for k in cls.__mro__ if field.name in vars(k).get("__annotations__", {})),
        field.type,
    )


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Own public methods and properties, without hooks and tests of the kit, which have pages of their own."""
    for name, value in vars(cls).items():
        shown = isinstance(value, PROPERTIES) or (inspect.isfunction(value) and not hasattr(value, "spec_core_impl"))
        if shown and not name.startswith(("_", "test_")):
            yield name, value


def getter(value: Any) -> Any:
    """The function that a property calls, or the function itself."""
    return value.fget if isinstance(value, property) else value.func if isinstance(value, cached_property) else value


def _parameters(cls: type) -> list[str]:
    return list(inspect.signature(cls.__init__).parameters)[1:]  # type: ignore[misc]


def member_signature(name: str, value: Any) -> str:
    if isinstance(value, PROPERTIES):
        return f"{name}: {_type_text(inspect.signature(getter(value)).return_annotation)}"
    return signature(name, value)


def signature(name: str, function: Any) -> str:
    """The signature as written in the source, with annotations as text."""
    parameters_of = inspect.signature(function)
    shown, starred = [], False
    for p in parameters_of.parameters.values():
        if p.name == "self":
            continue
        starred = starred or p.kind is p.VAR_POSITIONAL
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown, starred = [*shown, "*"], True
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        typed = "" if p.annotation is p.empty else f": {_type_text(p.annotation)}"
        shown.append(f"{star}{p.name}{typed}{'' if p.default is p.empty else _default(p.default)}")
    back = parameters_of.return_annotation
    result = "" if back in (parameters_of.empty, "None", None) else f" -> {_type_text(back)}"
    return f"{name}({', '.join(shown)}){result}"


def _type_text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: Any) -> str:
    if value is attrs.NOTHING:
        return ""
    return f" = {value!r}" if isinstance(value, PLAIN) or value == () else " = ..."


def code(text: str) -> str:
    return f"`{text}`"


def prose(value: Any) -> str:
    """A docstring, its parameters as a list."""
    function = getter(value)
    text, described = split(inspect.getdoc(function) or "", [*inspect.signature(function).parameters, "returns"])
    return "\n\n".join([text, "\n".join(_bullets({}, described))]).strip()


def split(text: str, names: list[str]) -> tuple[str, dict[tuple[str, ...], str]]:
    """The prose of a docstring, and its descriptions of ``names``: ``name: text`` or ``name, name: text``, anywhere.

    An indented block after ``::`` becomes a fenced block.
    """
    known = "|".join(map(re.escape, names)) or "(?!)"
    label = re.compile(rf"(?:^|(?<=[.;] ))(?::param |:)?((?:{known})(?:, (?:{known}))*):(?=\s)", re.M)
    kept, described = [], {}
    for paragraph in re.split(r"\n\s*\n(?= *\S)", text):
        if kept and kept[-1].endswith("::") and paragraph.startswith("    "):
            kept[-1:] = [kept[-1][:-1], f"```text\n{dedent(paragraph)}\n```"]
            continue
        labels = list(label.finditer(paragraph))
        ends = [*(match.start() for match in labels), len(paragraph)]
        kept.append(paragraph[: ends[0]].strip())
        for this, end in zip(labels, ends[1:], strict=True):
            described[tuple(this[1].split(", "))] = " ".join(paragraph[this.end() : end].split())
    return "\n\n".join(filter(None, kept)), described
