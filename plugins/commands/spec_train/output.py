"""Output paths: locked during training, written under a temporary name, and renamed when complete."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from spec_core.errors import UsageError, error_message

DISK_FULL = "the disk is full, or the file is longer than the limit of this process"
FREE_SPACE, OTHER_PATH = "free some disk space, or pass another --out", "pass another --out"


@contextmanager
def lock(out: Path) -> Iterator[None]:
    """Reserve the path of a head for one training run: the checkpoint next to it must have one writer.

    Raises UsageError if the path exists, if nothing can be written there, or if another run holds the lock.
    """
    lock = out.with_name(out.name + ".lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise write_error(out, error, OTHER_PATH) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another training run writes to {out}", hint=f"wait, or {OTHER_PATH}") from error
        try:
            if os.path.lexists(out):  # also a link to nowhere, which would be replaced
                raise UsageError(f"{out} exists", hint="remove it, or pass another --out")
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def atomic_path(out: Path) -> Iterator[Path]:
    """A temporary path to write to. It is renamed to ``out`` at the end, or removed after an error.

    Raises UsageError if the disk is full or cannot be written to.
    """
    part = out.with_name(out.name + ".part")
    remove_path(part)
    try:
        yield part
        part.replace(out)
    except OSError as error:
        raise write_error(out, error) from error
    finally:
        remove_path(part)


def save_tensors(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values to a temporary file, then rename it. Raises UsageError if the disk is full."""
    part = path.with_name(path.name + ".part")
    try:
        torch.save(state, part)
        part.replace(path)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
        reason = error_message(error) if isinstance(error, OSError) else DISK_FULL
        raise UsageError(f"{path} cannot be written: {reason}", hint=FREE_SPACE) from error
    finally:
        part.unlink(missing_ok=True)


def remove_path(path: Path) -> None:
    """Remove a file or a directory, if there is one."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def intermediate_path(out: Path, what: str) -> Path:
    """The path of an intermediate file: ``head.gguf.checkpoint``."""
    return out.with_name(f"{out.name}.{what}")


def write_error(out: Path, error: Exception, hint: str = FREE_SPACE) -> UsageError:
    reason = (
        DISK_FULL if "requested and" in str(error) else error_message(error)
    )  # numpy reports how many items it wrote
    return UsageError(f"{out} cannot be written: {reason}", hint=hint)
