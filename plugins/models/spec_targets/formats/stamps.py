"""Whether files changed between the reading of metadata and of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

Stamp = tuple[int, int, int, int, int]


def stamp_of(path: Path) -> Stamp | None:
    """Device, inode, size and times of a file; None if it cannot be read."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@attrs.frozen
class FileStamps:
    """The files of a model, as they were before they were opened. list_files: lists them again."""

    list_files: Callable[[], Iterable[Path]]
    stamps: dict[Path, Stamp | None]

    @classmethod
    def of(cls, list_files: Callable[[], Iterable[Path]]) -> FileStamps:
        return cls(list_files, {path: stamp_of(path) for path in list_files()})

    @property
    def changed(self) -> bool:
        """Whether a file was replaced, written, added or removed since."""
        return self.stamps != {path: stamp_of(path) for path in self.list_files()}
