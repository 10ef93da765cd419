"""Names of contenders: what distinguishes them from each other, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
from spec_commands.html_page import clean

from spec_core.commands import LoadSettings, TextSettings, format_method, parse_method

TEXT = tuple(f.name for f in attrs.fields(TextSettings))
"""Settings of a text: contenders that differ in one are compared with different plain texts."""
LOADING = ("model", *(f.name for f in attrs.fields(LoadSettings)))
"""Settings of a target."""


def names(chains: list[list[str]]) -> list[str]:
    """The shortest names of chains that differ: without files, with their stems, or as they were written."""
    listed = [title(chain) for chain in chains]
    for of in (_with_stem, str):
        often = Counter(listed)
        listed = [name if often[name] == 1 else title(c, of) for name, c in zip(listed, chains, strict=True)]
    return listed


def _short(part: str) -> str:
    """A method without its file; with other settings, the file is one of them."""
    name, settings = parse_method(part)
    return _with_stem(part) if settings.keys() - {"file"} else name


def _with_stem(part: str) -> str:
    """A method with its settings; of a path the stem."""
    name, settings = parse_method(part)
    return format_method(name, {key: _stem(key, value) for key, value in settings.items()})


def _stem(key: str, value: str) -> str:
    return Path(value).stem if key == "file" or Path(value).name != value else value


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


def cut_middle(name: str, length_max: int = 36) -> str:
    """A name that fits: its beginning and its end distinguish contenders."""
    name = clean(name)
    if len(name) <= length_max:
        return name
    end = (length_max - 1) // 2
    return f"{name[: length_max - 1 - end]}…{name[len(name) - end :]}"
