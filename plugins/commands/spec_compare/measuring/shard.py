"""A part of a comparison: some of its contenders, with their own plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen
class Shard:
    """Part ``number`` of ``count``. Neighbours stay together: they often share a plain decoding."""

    number: int = 0
    count: int = 1

    def of(self, entries: Sequence[T]) -> list[T]:
        """The entries of this part."""
        first, last = (len(entries) * n // self.count for n in (self.number, self.number + 1))
        return list(entries[first:last])


ALL_WORK = Shard()
