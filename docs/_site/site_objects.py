"""What the site's search and ``objects.inv`` know: the names of the Python API and the terms of the glossary.

Their pages are plain Markdown. Each name gets an anchor where it is described, and is registered with Sphinx.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from docutils import nodes

import spec_core
from spec_core import hookspecs, testing, toolkit
from tools.reference import GROUPS, PROPERTIES, exported_names

FIELD = re.compile(r"(\w+): ")
SECTIONS = {toolkit.__name__: toolkit, testing.__name__: testing, **dict.fromkeys(GROUPS, spec_core)}
"""Packages by the titles of the API page's sections."""


def register(app: Any, doctree: nodes.document) -> None:
    """Called for every page that was read."""
    read = {"api": _api, "hooks": _hooks, "glossary": _terms}.get(app.env.docname)
    if read is not None:
        read(app.env, doctree)


def _api(env: Any, doctree: nodes.document) -> None:
    for section in doctree.findall(nodes.section):
        package = SECTIONS.get(_title(section.parent)) if isinstance(section.parent, nodes.section) else None
        if package is not None:
            _describe(env, package, section)


def _describe(env: Any, package: ModuleType, section: nodes.section) -> None:
    """A name of a package, and of a class its fields and methods."""
    name = _title(section)
    value = dict(exported_names(package))[name]
    home = package.__name__ if hasattr(package, name) else value.__module__
    _note(env, section, f"{home}.{name}", kind(value), _origin(value, f"{home}.{name}"))
    if inspect.isclass(value):
        for member, node in members(section):
            objtype = "attribute" if isinstance(node, nodes.list_item) else _member_kind(vars(value)[member])
            _note(env, node, f"{home}.{name}.{member}", objtype)


def kind(value: Any) -> str:
    """As Sphinx names it."""
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isfunction(value) else "data"


def _member_kind(value: Any) -> str:
    return "property" if isinstance(value, PROPERTIES) else "method"


def _origin(value: Any, name: str) -> str | None:
    """The name under which tools find what another module defines, where it is not ``name``."""
    origin = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"
    return None if origin == name or kind(value) == "data" else origin


def members(section: nodes.section) -> Iterator[tuple[str, nodes.Element]]:
    """Fields, which are list items before the first method, and methods, which are in bold."""
    described = False
    for node in section.children:
        if isinstance(node, nodes.paragraph) and _bold(node):
            described = True
            yield re.split(r"\W", node.astext())[0], node
        elif isinstance(node, nodes.bullet_list) and not described:
            yield from ((name, item) for item in node.children for name in _fields(item))


def _bold(paragraph: nodes.paragraph) -> bool:
    """The whole of it."""
    return [c.astext() for c in paragraph.findall(nodes.strong)] == [paragraph.astext()]


def _fields(item: nodes.Node) -> Iterator[str]:
    """Names with types, several on one line if they share it; a parameter has no type."""
    for child in item.children[0].children:
        if isinstance(child, nodes.literal) and (match := FIELD.match(child.astext())):
            yield match[1]
        elif child.astext() not in ("", ", "):
            return


def _hooks(env: Any, doctree: nodes.document) -> None:
    for section in doctree.findall(nodes.section):
        name, bracket, _ = _title(section).partition("(")
        if bracket:
            _note(env, section, f"{hookspecs.__name__}.{name}", "function")


def _terms(env: Any, doctree: nodes.document) -> None:
    """Every synonym of a row leads to it."""
    for row in doctree.findall(nodes.row):
        if isinstance(row.parent, nodes.tbody):
            for term in row[0].astext().split(", "):
                anchor = _anchor(row, "term-" + re.sub(r"\W+", "-", term.lower()))
                env.get_domain("std").note_object("term", term, anchor, location=row)


def _note(env: Any, node: nodes.Element, name: str, objtype: str, origin: str | None = None) -> None:
    domain, anchor = env.get_domain("py"), _anchor(node, name)
    domain.note_object(name, objtype, anchor, location=node)
    if origin is not None:
        domain.note_object(origin, objtype, anchor, aliased=True, location=node)


def _anchor(node: nodes.Element, name: str) -> str:
    node["ids"].append(name)
    return name


def _title(section: nodes.Element) -> str:
    return section[0].astext()


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", register)
    return {"parallel_read_safe": True}
