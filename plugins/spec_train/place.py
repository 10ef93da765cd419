"""Where a head is written: under another name first, and put in place when it is whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spec_core.errors import UsageError, why


def check(out: Path) -> None:
    """Whether a head can be written there, before anything is trained. Raises UsageError."""
    if out.exists():
        raise UsageError(f"{out} exists", mend="remove it, or give another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        probe = out.with_name(out.name + ".part")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(out, error) from error


@contextmanager
def beside(out: Path) -> Iterator[Path]:
    """A name to write to; what is there at the end gets the final name, what an error left is removed.

    Raises UsageError for a disk that is full or cannot be written to.
    """
    part = out.with_name(out.name + ".part")
    remove(part)
    try:
        yield part
        part.replace(out)
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        remove(part)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def unwritable(out: Path, error: Exception) -> UsageError:
    return UsageError(f"{out} cannot be written: {why(error)}", mend="make room, or give another --out")
