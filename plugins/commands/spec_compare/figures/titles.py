"""Names of contenders: what distinguishes them from each other, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

from spec_core.commands import LoadSettings, TextSettings, format_method, parse_method

TEXT = tuple(f.name for f in attrs.fields(TextSettings))
"""Settings of a text: contenders that differ in one are compared with different plain texts."""
LOADING = ("model", *(f.name for f in attrs.fields(LoadSettings)))
"""Settings of a target."""


def names(chains: list[list[str]]) -> list[str]:
    """Names of chains without files, or with the names of files if two would be called the same. Settings stay."""
    short = [title(c) for c in chains]
    often = Counter(short)
    return [name if often[name] == 1 else title(c, _with_file) for name, c in zip(short, chains, strict=True)]


def _short(part: str) -> str:
    before, _, _ = part.partition("=")
    return part if ":" in before else before


def _with_file(part: str) -> str:
    before, equals, file = part.partition("=")
    return part if ":" in before else f"{before}{equals}{Path(file).name}"


def title(chain: list[str], of: Callable[[str], str] = _short) -> str:
    """Methods joined by `` + ``, and by `` ++ `` before one that extends the drafts of others."""
    if not chain:
        return ""
    first, *rest = chain
    return of(first) + "".join(_joint(part, of) for part in rest)


def _joint(part: str, of: Callable[[str], str]) -> str:
    name, settings = parse_method(part)
    if settings.get("extend") != "true":
        return f" + {of(part)}"
    return f" ++ {of(format_method(name, {key: value for key, value in settings.items() if key != 'extend'}))}"


def places(models: Iterable[Any]) -> dict[Any, str]:
    """{model: what it is called in names}: its scheme and its file or directory; whole where two would be equal."""
    short = {model: _place(str(model)) for model in models}
    often = Counter(short.values())
    return {model: name if often[name] == 1 else str(model) for model, name in short.items()}


def _place(model: str) -> str:
    scheme, colon, path = model.rpartition(":")
    return f"{scheme}{colon}{Path(path).name or path}"


def value_text(value: Any) -> str:
    """A value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
