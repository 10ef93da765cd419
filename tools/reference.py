"""Descriptions of parameters and fields in docstrings: ``name: text``, anywhere in a paragraph."""

from __future__ import annotations

import inspect
import re
from textwrap import dedent
from typing import Any

import attrs

INDENTED = re.compile(r"::\n\n((?: {4}.*\n?|\n)+)")
"""An indented block after a double colon."""


def prose(function: Any) -> str:
    """The docstring of a function as Markdown, its parameters as a list."""
    return fence_blocks(list_fields(function, inspect.getdoc(function) or "", "`")).strip()


def list_fields(value: Any, text: str, quote: str = "``") -> str:
    """The docstring of a class or function, its descriptions as a list of fields. quote: around names."""
    text, described = split(text, names_of(value))
    bullets = [f"- {', '.join(f'{quote}{name}{quote}' for name in names)}: {text}" for names, text in described.items()]
    return "\n\n".join([text, "\n".join(bullets)]) + "\n"


def names_of(value: Any) -> list[str]:
    """Names that a docstring describes: fields and parameters of a class; parameters of a function, and its result."""
    if inspect.isclass(value):
        fields = [field.name for field in attrs.fields(value)] if attrs.has(value) else []
        annotated = [name for cls in value.__mro__ for name in vars(cls).get("__annotations__", {})]
        return [*dict.fromkeys([*fields, *annotated, *list(inspect.signature(value.__init__).parameters)[1:]])]
    return [*inspect.signature(value).parameters, "returns"] if callable(value) else []


def fence_blocks(text: str) -> str:
    """Indented blocks after ``::`` as fenced blocks of Markdown."""
    return INDENTED.sub(lambda block: f":\n\n```text\n{dedent(block[1]).strip()}\n```\n\n", text).strip()


def split(text: str, names: list[str]) -> tuple[str, dict[tuple[str, ...], str]]:
    """The prose of a docstring, and its descriptions of ``names``: ``name: text`` or ``name, name: text``, anywhere."""
    known = "|".join(map(re.escape, names)) or "(?!)"
    label = re.compile(rf"(?:^|(?<=[.;] ))(?::param |:)?((?:{known})(?:, (?:{known}))*):(?=\s)", re.M)
    kept, described = [], {}
    for paragraph in re.split(r"\n\s*\n(?= *\S)", text):
        labels = list(label.finditer(paragraph))
        ends = [*(match.start() for match in labels), len(paragraph)]
        kept.append(paragraph[: ends[0]].rstrip())
        for this, end in zip(labels, ends[1:], strict=True):
            described[tuple(this[1].split(", "))] = " ".join(paragraph[this.end() : end].split())
    return "\n\n".join(filter(None, kept)), described
