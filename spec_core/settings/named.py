"""Names of plugins as users write them: ``NAME``, ``NAME=FILE``, or ``NAME:key=value,key=value``.

The last form sets values for this use of the plugin only, so that one comparison can run
``NAME:depth=2`` and ``NAME:depth=4``.
"""

from __future__ import annotations

import re
from collections.abc import Container

from spec_core.errors import UsageError


def name_of(spec: str) -> str:
    """The plugin's name without settings."""
    return parse_method(spec)[0]


def parse_method(spec: str) -> tuple[str, dict[str, str]]:
    """(name, settings written with it). Raises UsageError for a part that is not key=value."""
    before, equals, file = spec.partition("=")
    name, colon, _ = before.partition(":")
    if colon:
        return name, dict(_pair(spec, pair) for pair in spec[len(name) + 1 :].split(","))
    return name, {"file": file} if equals else {}


def format_method(name: str, settings: dict[str, str]) -> str:
    """The inverse of ``parse_method``."""
    if not settings.keys() - {"file"}:
        return name + "".join(f"={file}" for file in settings.values())
    return f"{name}:" + ",".join(f"{key}={value}" for key, value in settings.items())


def split_methods(spec: str, known: Container[str]) -> list[str]:
    """``a+b++c=FILE`` as methods in the order of asking; ``++`` sets ``extend=true`` for the method after it.

    A + inside a file's name does not separate, as no known method's name follows it.
    """
    first, *rest = re.split(r"(\+\+?)", spec)
    methods = [first]
    for joint, method in zip(rest[::2], rest[1::2], strict=True):
        if name_of(method) not in known:
            methods[-1] += joint + method
        else:
            methods.append(extending_name(method) if joint == "++" else method)
    return methods


def extending_name(spec: str) -> str:
    """Name of the method with ``extend=true``."""
    name, settings = parse_method(spec)
    return format_method(name, settings | {"extend": "true"})


def _pair(spec: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UsageError(f"{spec!r}: {text!r} must be key=value", hint="write NAME:key=value,key=value, or NAME=FILE")
    return key, value
