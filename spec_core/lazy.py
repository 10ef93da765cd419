"""Names that are imported at first use, and functions of packages that run before torch is imported.

Libraries that torch loads read their settings once, at that moment.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

BEFORE_TORCH = "spec_core.before_torch"
"""Entry point group of functions that take no arguments and do not import torch."""


@functools.cache
def call_before_torch() -> None:
    """Call each of them, once. A failure is only a warning, since a run works without these settings."""
    for point in metadata.entry_points(group=BEFORE_TORCH):
        try:
            point.load()()
        except Exception as error:
            warnings.warn(f"{BEFORE_TORCH} {point.name!r} failed: {type(error).__name__}: {error}", stacklevel=2)


def lazy(module: dict[str, Any], where: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose names are imported at first use.

    module: its ``globals()``. where: {name: module of ``spec_core`` that defines it}.
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        call_before_torch()
        module[name] = getattr(importlib.import_module(f"spec_core.{where[name]}"), name)
        return module[name]

    return get
