"""Names that the site's search and ``objects.inv`` contain besides the Python API: hooks and terms of the glossary.

Their pages are plain Markdown. Each name gets an anchor where it is described, and is registered with Sphinx.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from spec_core import hookspecs


def register(app: Any, doctree: nodes.document) -> None:
    """Called for every page that was read."""
    read = {"hooks": _hooks, "glossary": _terms}.get(app.env.docname)
    if read is not None:
        read(app.env, doctree)


def _hooks(env: Any, doctree: nodes.document) -> None:
    for section in doctree.findall(nodes.section):
        name, bracket, _ = _title(section).partition("(")
        if bracket:
            full_name = f"{hookspecs.__name__}.{name}"
            env.get_domain("py").note_object(full_name, "function", _anchor(section, full_name), location=section)


def _terms(env: Any, doctree: nodes.document) -> None:
    """Every synonym of a row leads to it."""
    for row in doctree.findall(nodes.row):
        if isinstance(row.parent, nodes.tbody):
            for term in row[0].astext().split(", "):
                anchor = _anchor(row, "term-" + re.sub(r"\W+", "-", term.lower()))
                env.get_domain("std").note_object("term", term, anchor, location=row)


def _anchor(node: nodes.Element, name: str) -> str:
    node["ids"].append(name)
    return name


def _title(section: nodes.Element) -> str:
    return section[0].astext()


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", register)
    return {"parallel_read_safe": True}
