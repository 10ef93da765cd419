"""Docstrings of the Python API as Sphinx shows them: parameters and fields that they describe become a list."""

from __future__ import annotations

from typing import Any

from tools.reference import list_fields


def rewrite(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Of a constant Sphinx knows the docstring of its type only, which is left out."""
    lines[:] = [] if what == "data" else list_fields(value, "\n".join(lines)).split("\n")


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", rewrite)
    return {"parallel_read_safe": True}
