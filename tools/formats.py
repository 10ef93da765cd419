"""The lists of the page of results files, from the JSON schemas that ship with the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_compare.records import schema

PAGE = Path(__file__).parents[1] / "docs" / "results-file.md"
MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.S)
SHORT_TYPES = {"integer": "int", "string": "str", "boolean": "bool"}
TITLES = {
    "header": "The first line: `kind` is `header`",
    "session": "When an interrupted comparison continues: `kind` is `session`",
    "record": "A text: `kind` is `record`",
}


def results_file() -> str:
    """The page with its generated part made again; the rest is written by hand."""
    return MARKED.sub(lambda match: f"{match[1]}\n{results()}\n{match[3]}", PAGE.read_text("utf-8"))


def results() -> str:
    """Every name of every kind of line of ``results.jsonl``."""
    parts = [f"## {TITLES[kind]}\n\n{list_names(schema.line(kind))}\n" for kind in schema.KINDS]
    return "\n\n".join(parts)


def list_names(lines: dict[str, Any]) -> str:
    return "\n".join(f"- `{name}` ({kind}): {help}" for name, kind, help in rows(lines))


def rows(of: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(name, type, description) of every property, objects followed by their own properties."""
    for name, value in of["properties"].items():
        yield prefix + name, type_of(value), value["description"]
        for inner, suffix in (
            (value, "."),
            (value.get("items", {}), "[]."),
            (value.get("additionalProperties", {}), ".*."),
        ):
            if "properties" in inner:
                yield from rows(inner, prefix + name + suffix)
        for choice in value.get("anyOf", ()):
            if "properties" in choice:
                yield from rows(choice, prefix + name + ".")


def type_of(value: dict[str, Any]) -> str:
    """``int``, ``float?`` (or null), ``int[][]``, ``number|null|int[]``."""
    if "const" in value:
        return "str"
    if "anyOf" in value:
        kinds = [type_of(choice) for choice in value["anyOf"]]
        return f"{kinds[0]}?" if kinds[1:] == ["null"] else "|".join(kinds)
    kind = value.get("type", "any")
    return f"{type_of(value['items'])}[]" if kind == "array" else SHORT_TYPES.get(kind, kind)
