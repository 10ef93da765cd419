"""The tables of the page of output formats, from the JSON schemas that ship with the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_compare.records import schema

PAGE = Path(__file__).parents[1] / "docs" / "output.md"
MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.S)
HEAD = "| name | type | what it is |\n| --- | --- | --- |"
TITLES = {
    "header": "The first line: `kind` is `header`",
    "session": "When an interrupted comparison continues: `kind` is `session`",
    "record": "A text: `kind` is `record`",
}


def output() -> str:
    """The page with its generated parts made again; the rest is written by hand."""
    tables = {"results.jsonl": results}
    return MARKED.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n{match[3]}", PAGE.read_text("utf-8"))


def results() -> str:
    """Every name of every kind of line of ``results.jsonl``."""
    parts = [f"### {TITLES[kind]}\n\n{table(schema.line(kind))}\n" for kind in schema.KINDS]
    return "\n\n".join(parts)


def table(lines: dict[str, Any]) -> str:
    return "\n".join([HEAD, *(f"| `{name}` | {kind} | {help} |" for name, kind, help in rows(lines))])


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
    if "const" in value:
        return "string"
    if "anyOf" in value:
        return " or ".join(type_of(choice) for choice in value["anyOf"])
    kind = value.get("type", "any")
    return f"{kind} of {plural(type_of(value['items']))}" if kind == "array" else kind


def plural(kind: str) -> str:
    """``array of integers``, ``array of arrays of integers``."""
    if " or " in kind:
        return f"({kind})"
    first, *rest = kind.split(" ", 1)
    return " ".join([f"{first}s" if first != "any" else "any", *rest])
