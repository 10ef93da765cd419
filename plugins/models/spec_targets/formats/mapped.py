"""Memory-mapped files, and tensors that are views of them."""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from spec_targets.formats.damage import unsupported_error

if TYPE_CHECKING:
    from torch import Tensor


_files: WeakKeyDictionary[mmap.mmap, int] = WeakKeyDictionary()
"""Files that are mapped now, and their addresses."""
_listed = Lock()


def map_file(path: Path) -> memoryview:
    """The whole file, paged in on use. Raises UsageError for one that cannot be read, or is empty."""
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with _listed:
                _files[mapping] = np.frombuffer(mapping, dtype=np.uint8).ctypes.data
            return memoryview(mapping)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is empty"
        raise unsupported_error(path, f"cannot be read: {reason}", "check the path and its permissions") from error


def release_pages() -> None:
    """Release the pages of mapped files, whose contents have been copied. A page that is read again
    comes from the system's cache, or from the file."""
    with _listed:
        files = list(_files)
    for file in files:
        if hasattr(mmap, "MADV_DONTNEED"):
            file.madvise(mmap.MADV_DONTNEED)


def release_rows(rows: Tensor) -> None:
    """Release the pages of contiguous rows that have been copied, if they are a view of a mapped file."""
    begin, size = rows.data_ptr(), rows.nbytes
    with _listed:
        files = list(_files.items())
    for file, address in files:
        if address <= begin and begin + size <= address + len(file) and hasattr(mmap, "MADV_DONTNEED"):
            first = (begin - address) // mmap.PAGESIZE * mmap.PAGESIZE
            file.madvise(mmap.MADV_DONTNEED, first, begin + size - address - first)


def view(buffer: memoryview, offset: int, nbytes: int) -> Tensor:
    """uint8 [nbytes], no copy. torch warns about read-only memory, but nothing writes here."""
    import torch

    array = np.frombuffer(buffer, dtype=np.uint8, count=nbytes, offset=offset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
