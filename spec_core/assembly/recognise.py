"""Finds the target of a bare path: every installed target is asked whether it recognises the path."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from spec_core.assembly.discovery import installed_points
from spec_core.errors import FOREIGN, UsageError, message

RECOGNISE = "spec_core.recognise"
"""Entry points named like the scheme: functions ``path -> bool`` for an existing path, with cheap imports."""


def recognise_scheme(path: Path) -> str:
    """The scheme of a path that exists.

    Raises UsageError if no target recognises it, or several do; a function that raised is named in the message.
    """
    points = installed_points(RECOGNISE)
    matches, failed, refused = ask_targets(path, points)
    if len(matches) == 1:
        return matches[0]
    if refused and not matches:
        raise refused[0]
    schemes = ", ".join(point.name for point in points) or "none"
    if matches:
        raise UsageError(
            f"{path} is recognised by several targets: {', '.join(matches)}", hint=f"choose one: {matches[0]}:{path}"
        )
    raise UsageError(
        f"{path} is not a model that an installed target recognises; asked: {'; '.join([schemes, *failed])}",
        hint="give a model's file or directory, or name its scheme: SCHEME:PATH",
    )


def ask_targets(path: Path, points: Iterable[metadata.EntryPoint]) -> tuple[list[str], list[str], list[UsageError]]:
    """Schemes that recognise the path, messages of the failed ones, and refusals of the file as damaged."""
    matches: list[str] = []
    refused: list[UsageError] = []
    failed: list[str] = []
    for point in points:
        try:
            if point.load()(path):
                matches.append(point.name)
        except UsageError as error:
            refused.append(error)
        except FOREIGN as error:  # a plugin's function may raise anything; the others are still asked
            failed.append(f"{point.name} failed ({type(error).__name__}: {message(error)})")
    return matches, failed, refused
