"""Lessons on disk, one file each: what a target said once is not asked for again, in this run or a resumed one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import attrs
import numpy as np
import torch

from spec_train import place
from spec_train.lessons import Lesson, Likely, Row


@attrs.define(eq=False)
class Shelf:
    """A folder. room: bytes that may still be written; what does not fit is not kept. device: where lessons go."""

    folder: Path
    room: int
    device: str = "cpu"

    def __attrs_post_init__(self) -> None:
        if self.folder.is_dir():
            self.room -= sum(path.stat().st_size for path in self.folder.iterdir())

    def get(self, row: Row) -> Lesson | None:
        """The lesson of a row, or None. A file that was cut off, or damaged, is none."""
        try:
            kept = torch.load(self._file(row), weights_only=True, map_location=self.device)
        except FileNotFoundError:
            return None
        except Exception:  # torch has several for a damaged file
            return None
        return Lesson(kept["tokens"], kept["features"], Likely(kept["ids"], kept["p"]), row.start)

    def put(self, row: Row, lesson: Lesson) -> None:
        """Raises UsageError for a disk that is full."""
        if lesson.bytes > self.room:
            return
        self.room -= lesson.bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        likely = {"ids": lesson.likely.ids, "p": lesson.likely.p}
        place.keep(self._file(row), {"tokens": lesson.tokens, "features": lesson.features, **likely})

    def _file(self, row: Row) -> Path:
        marked = np.array([row.start, *row.tokens], dtype=np.int32)
        return self.folder / f"{hashlib.blake2b(marked.tobytes(), digest_size=12).hexdigest()}.pt"
