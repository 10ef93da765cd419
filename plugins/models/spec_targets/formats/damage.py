"""Errors for damaged files."""

from __future__ import annotations

from pathlib import Path

from spec_core.errors import UsageError

AGAIN = "the file is damaged; get it again"
"""The hint for a file with impossible contents."""
NAME_MAX = 1000
"""Max characters of a tensor's or key's name; published names are shorter than 100, and messages repeat them."""


def damage_error(path: Path, problem: str) -> UsageError:
    """The error for a file that is not what it claims to be."""
    return UsageError(f"{path.name}: {problem}", hint="the file is damaged or not what it claims; get it again")


def unsupported_error(path: Path, problem: str, hint: str) -> UsageError:
    """The error for a valid file that is not supported."""
    return UsageError(f"{path.name}: {problem}", hint=hint)


def check_name(path: Path, name: str) -> None:
    """Raise UsageError for a tensor or key name that is too long."""
    if len(name) > NAME_MAX:
        raise damage_error(path, f"the name {name[:40]!r}... has {len(name)} characters, the limit is {NAME_MAX}")
