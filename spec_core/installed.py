"""Entry points of the installed packages: metadata of strangers, which may be damaged."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Any

TORCH_EXTENSIONS = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""Variable of torch that says whether it reads entry points while it is imported."""


class InstalledWarning(UserWarning):
    """An installed package whose metadata cannot be read."""


def read_entry_points(read: Callable[..., Any] | None = None, **keywords: Any) -> Any:
    """Entry points of all packages that can be read; the others are named in a warning each.

    read: reads those of all packages at once; the default is that of ``importlib.metadata``.
    """
    try:
        return (read or metadata.entry_points)(**keywords)
    except Exception:  # one package's file is enough: the others are read one by one
        return metadata.EntryPoints(_readable_points(tuple(sys.path))).select(**keywords)


@lru_cache(maxsize=2)
def _readable_points(places: tuple[str, ...]) -> list[metadata.EntryPoint]:
    os.environ.setdefault(TORCH_EXTENSIONS, "0")  # it would fail for the same reason
    points: list[metadata.EntryPoint] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        name = _name(distribution)
        if name in seen:  # one that comes earlier in sys.path is in its place
            continue
        seen.add(name)
        try:
            points += distribution.entry_points
        except Exception as error:  # the file may hold anything
            problem = f"the entry points of the package {name!r} cannot be read: {type(error).__name__}: {error}"
            warnings.warn(f"{problem}; correct its entry_points.txt, or pip uninstall {name}", InstalledWarning, 2)
    return points


def _name(distribution: metadata.Distribution) -> str:
    """The package's name, or that of its folder where its metadata has none."""
    try:
        name = distribution.metadata["Name"]
    except Exception:
        name = None
    folder = getattr(distribution, "_path", None)
    return str(name or getattr(folder, "stem", "?").partition("-")[0])
