"""One way to say that a file is damaged."""

from __future__ import annotations

from pathlib import Path

from spec_core.errors import UsageError


def damaged(path: Path, found: str) -> UsageError:
    """The error of a file that is not what it claims to be."""
    return UsageError(f"{path.name}: {found}", hint="the file is damaged or not what it claims; get it again")


def unsupported(path: Path, found: str, hint: str) -> UsageError:
    """The error of a sound file that we do not read."""
    return UsageError(f"{path.name}: {found}", hint=hint)
