"""Whose a bare path is: every target that says how its locations look is asked."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from spec_core.assembly.discovery import installed
from spec_core.errors import UsageError, message

RECOGNISE = "spec_core.recognise"
"""Entry points named as the scheme: functions ``path -> bool`` of a path that exists, which import nothing heavy."""


def recognise(path: Path) -> str:
    """The scheme of a path that exists.

    Raises UsageError where no target recognises it, or several do; one whose function fails is named.
    """
    points = installed(RECOGNISE)
    found, failed = asked(path, points)
    if len(found) == 1:
        return found[0]
    schemes = ", ".join(point.name for point in points) or "none"
    if found:
        raise UsageError(
            f"{path} is a model to several targets: {', '.join(found)}", hint=f"say which: {found[0]}:{path}"
        )
    raise UsageError(
        f"{path} is not a model that an installed target recognises; asked: {'; '.join([schemes, *failed])}",
        hint="give a model's file or directory, or say what it is: SCHEME:PATH",
    )


def asked(path: Path, points: Iterable[metadata.EntryPoint]) -> tuple[list[str], list[str]]:
    """Schemes that claim the path, and what those said that failed."""
    found: list[str] = []
    failed: list[str] = []
    for point in points:
        try:
            if point.load()(path):
                found.append(point.name)
        except Exception as error:  # a stranger's function may fail in any way; the others are asked all the same
            failed.append(f"{point.name} failed ({type(error).__name__}: {message(error)})")
    return found, failed
