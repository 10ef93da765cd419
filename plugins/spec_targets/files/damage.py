"""One way to say that a file is damaged."""

from __future__ import annotations

from pathlib import Path

from spec_core.errors import UsageError

MOST_NAME = 1000
"""Characters of a tensor's or key's name; published ones have less than a hundred, and messages repeat them."""


def damaged(path: Path, found: str) -> UsageError:
    """The error of a file that is not what it claims to be."""
    return UsageError(f"{path.name}: {found}", hint="the file is damaged or not what it claims; get it again")


def unsupported(path: Path, found: str, hint: str) -> UsageError:
    """The error of a sound file that we do not read."""
    return UsageError(f"{path.name}: {found}", hint=hint)


def check_name(path: Path, name: str) -> None:
    """Raise UsageError for a name of a tensor or of a key that is too long to be one."""
    if len(name) > MOST_NAME:
        raise damaged(path, f"the name {name[:40]!r}... has {len(name)} characters, {MOST_NAME} are possible")
