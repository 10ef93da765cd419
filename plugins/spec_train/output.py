"""Where a head is written: under another name first, and put in place when it is whole."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from spec_core.errors import UsageError, why

FULL = "the disk is full, or files may not be so long"
ROOM, WHERE = "make room, or give another --out", "give another --out"


@contextmanager
def taken(out: Path) -> Iterator[None]:
    """The place of a head, for one training at a time: what lies beside it is of one of them only.

    Raises UsageError where something is there, where nothing can be written, or while another training has the place.
    """
    lock = out.with_name(out.name + ".lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise unwritable(out, error, WHERE) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another training writes to {out}", hint="wait for it, or give another --out") from error
        try:
            if out.exists():
                raise UsageError(f"{out} exists", hint="remove it, or give another --out")
            yield
        finally:
            lock.unlink(missing_ok=True)


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


def keep(path: Path, state: dict[str, Any]) -> None:
    """Tensors and plain values, written beside and put in place. Raises UsageError for a full disk."""
    part = path.with_name(path.name + ".part")
    try:
        torch.save(state, part)
        part.replace(path)
    except (OSError, RuntimeError) as error:  # torch has an error of its own for a full disk
        reason = why(error) if isinstance(error, OSError) else FULL
        raise UsageError(f"{path} cannot be written: {reason}", hint=ROOM) from error
    finally:
        part.unlink(missing_ok=True)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def unwritable(out: Path, error: Exception, hint: str = ROOM) -> UsageError:
    reason = FULL if "requested and" in str(error) else why(error)  # numpy says how many items were written
    return UsageError(f"{out} cannot be written: {reason}", hint=hint)
