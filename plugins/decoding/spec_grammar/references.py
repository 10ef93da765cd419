"""Depth of a schema or grammar, counted along its references.

Compilers follow references recursively, so a chain of rules is as deep as nested brackets, and cannot be seen in the
nesting of the text. Depth here is that of a depth-first search in the order of the text, which visits every place once,
as a compiler that remembers rules does. Nothing here is recursive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

Graph = Sequence[Sequence[int]]
"""Numbers of the places that each place leads to; the first place is where the search begins."""
DEFINITION = re.compile(r"^[ \t]*[!?]*([A-Za-z_]\w*)\b[^\n:\"/]*:", re.MULTILINE)
"""The name of a rule or terminal of Lark's notation, and what may stand before the colon."""
PART = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/(?:[^/\\\n]|\\.)+/|(?P<name>[A-Za-z_]\w*)')
"""Texts, comments and regular expressions, which have no names in them, and names."""


def depth(graph: Graph) -> int:
    """Number of places on the longest path that a depth-first search from the first place takes."""
    if not graph:
        return 0
    seen = {0}
    path = [iter(graph[0])]
    deepest = 1
    while path:
        following = next((place for place in path[-1] if place not in seen), None)
        if following is None:
            path.pop()
            continue
        seen.add(following)
        path.append(iter(graph[following]))
        deepest = max(deepest, len(path))
    return deepest


def schema_depth(schema: Any) -> int:
    """Depth of a JSON schema: nested values and ``$ref`` to others count alike."""
    return depth(_schema_graph(schema))


def lark_depth(text: str) -> int:
    """Depth of a grammar in Lark's notation: rules and terminals that name others."""
    definitions = list(DEFINITION.finditer(text))
    numbers = {"start": 0} | {match[1]: i for i, match in enumerate(definitions, 1)}
    bodies: list[list[int]] = [[] for _ in range(len(definitions) + 1)]
    ends = [*(match.start() for match in definitions[1:]), len(text)]
    for i, (match, end) in enumerate(zip(definitions, ends, strict=False), 1):
        bodies[i] = [numbers[name] for name in _names(text[match.end() : end]) if name in numbers]
    bodies[0] = [numbers["start"]] if numbers["start"] else list(range(1, len(bodies)))
    return depth(bodies) - 1


def _names(body: str) -> Iterator[str]:
    return (match["name"] for match in PART.finditer(body) if match["name"])


def _schema_graph(schema: Any) -> Graph:
    """Objects and lists of a schema, and what each of them holds or refers to."""
    values, numbers = [schema], {id(schema): 0}
    for value in values:  # grows while it is read
        for inner in _inner(value):
            if id(inner) not in numbers:
                numbers[id(inner)] = len(values)
                values.append(inner)
    anchors = _anchors(values)
    graph = []
    for value in values:
        places = [numbers[id(inner)] for inner in _inner(value)]
        if isinstance(value, Mapping):
            targets = (value.get(key) for key in ("$ref", "$dynamicRef"))
            resolved = (_resolve(schema, anchors, target) for target in targets if isinstance(target, str))
            places += [numbers[id(target)] for target in resolved if id(target) in numbers]
        graph.append(places)
    return graph


def _inner(value: Any) -> list[Any]:
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [inner for inner in held if isinstance(inner, (Mapping, list))]


def _anchors(values: Sequence[Any]) -> dict[str, Any]:
    """Schemas by the names that they give themselves."""
    named: dict[str, Any] = {}
    for value in values:
        if isinstance(value, Mapping):
            for key, mark in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                if isinstance(value.get(key), str):
                    named.setdefault(mark + value[key], value)
    return named


def _resolve(root: Any, anchors: Mapping[str, Any], reference: str) -> Any:
    """The schema that a reference names; None for one that this document does not have."""
    if reference in anchors:
        return anchors[reference]
    base, _, pointer = reference.partition("#")
    value = anchors.get(base, root)
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and len(key) < 7 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


class Document:
    """A schema whose references can be followed. has_inner_ids: some of them begin elsewhere than at the root."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        values: list[Any] = [root]
        for value in values:  # grows while it is read
            values += _inner(value)
        self.root, self._anchors = root, _anchors(values)
        self.has_inner_ids = any(isinstance(one, Mapping) and isinstance(one.get("$id"), str) for one in values[1:])

    def resolve(self, reference: str) -> Any:
        """The schema that a reference names; None for one that this document does not have."""
        base, _, pointer = reference.partition("#")
        if base and base not in self._anchors:
            return None
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(reference)
        return _resolve(self.root, self._anchors, reference)
