"""Names that are imported at first use, and functions of packages that run before torch is imported.

Libraries that torch loads read their settings once, at that moment.
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spec_core.errors import FOREIGN
from spec_core.installed import read_entry_points

BEFORE_TORCH = "spec_core.before_torch"
"""Entry point group of functions that take no arguments and do not import torch."""
IMPORT = re.compile(r"^from (\S+) import (\w+) as \w+$", re.M)
"""A line of a stub: module and name."""


@functools.cache
def call_before_torch() -> None:
    """Call each of them, once. A failure is only a warning, since a run works without these settings."""
    for point in read_entry_points(group=BEFORE_TORCH):
        try:
            point.load()()
        except FOREIGN as error:
            warnings.warn(f"{BEFORE_TORCH} {point.name!r} failed: {type(error).__name__}: {error}", stacklevel=2)


def lazy(module: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a module whose names are imported at first use.

    Its stub, the ``.pyi`` file in its folder, has a line ``from MODULE import NAME as NAME`` for each.
    module: its ``globals()``.
    """
    stub = Path(module["__file__"]).with_suffix(".pyi")
    where = {name: source for source, name in IMPORT.findall(stub.read_text("utf-8"))}
    names = sorted(where)
    return importer(module, where), lambda: names, names


def importer(module: dict[str, Any], where: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose names are imported at first use.

    module: its ``globals()``. where: {name: module that defines it}.
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        call_before_torch()
        module[name] = getattr(importlib.import_module(where[name]), name)
        return module[name]

    return get
