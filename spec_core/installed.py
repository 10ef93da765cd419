"""Entry points of the installed packages: metadata of strangers, which may be damaged."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from itertools import chain
from typing import Any

TORCH_EXTENSIONS = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""Variable of torch that says whether it reads entry points while it is imported."""


class InstalledWarning(UserWarning):
    """An installed package whose metadata cannot be read."""


def read_entry_points(group: str, name: str | None = None) -> metadata.EntryPoints:
    """Entry points of all packages that can be read; the others are named in a warning each.

    Files are read again when a folder of ``sys.path`` has changed.
    """
    places = tuple((folder, _modified_at(folder)) for folder in sys.path)
    points = _points_by_group(metadata.entry_points, places).get(group, ())
    return metadata.EntryPoints(point for point in points if name is None or point.name == name)


@lru_cache(maxsize=2)
def _points_by_group(
    read: Callable[[], Any], places: tuple[tuple[str, int], ...]
) -> dict[str, list[metadata.EntryPoint]]:
    """Everything installed in these places, which are folders and when they were changed."""
    try:
        points = _list_points(read())
    except Exception:  # one package's file is enough: the others are read one by one
        points = _readable_points()
    groups: dict[str, list[metadata.EntryPoint]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    return groups


def _list_points(points: Any) -> list[metadata.EntryPoint]:
    """All entry points; before Python 3.12 they are in a dict of groups."""
    return list(chain.from_iterable(dict.values(points)) if isinstance(points, dict) else points)


def _modified_at(folder: str) -> int:
    """Modification time of a folder of ``sys.path``; 0 if it does not exist."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _readable_points() -> list[metadata.EntryPoint]:
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
