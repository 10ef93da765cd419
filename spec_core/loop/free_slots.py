"""Free slots, which keep their rows: the least recently used first, and sorted by the beginnings of their texts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import attrs

from spec_core.contract.sequence import Slot

ROWS_MIN = 64
"""Rows that every slot counts as: a short text takes memory for more."""
Key = tuple[str, tuple[int, ...], int]
"""Salt, tokens, and number of the entry."""


@attrs.define(eq=False)
class FreeSlots:
    """Slots of finished sequences. rows: of all slots together, reserved in memory, at least ROWS_MIN for each."""

    rows: int = 0
    _entries: dict[Slot, tuple[Key, int]] = attrs.field(factory=dict)
    _sorted: list[tuple[Key, Slot]] = attrs.field(factory=list)
    _number: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Slot]:
        """The least recently used first."""
        return iter(list(self._entries))

    def add(self, slot: Slot) -> None:
        """Add the slot as the most recently used one. Its rows do not change while it is here."""
        tokens = tuple(slot.tokens[: slot.evaluated])
        self._number += 1
        key = slot.salt, tokens, self._number
        rows = max(slot.reserved or slot.evaluated, ROWS_MIN)
        self._entries[slot] = key, rows
        insort(self._sorted, (key, slot), key=lambda entry: entry[0])
        self.rows += rows

    def remove(self, slot: Slot) -> None:
        key, rows = self._entries.pop(slot)
        del self._sorted[bisect_left(self._sorted, key, key=lambda entry: entry[0])]
        self.rows -= rows

    def oldest(self) -> Slot:
        """The least recently used slot."""
        return next(iter(self._entries))

    def clear(self) -> None:
        self._entries.clear()
        self._sorted.clear()
        self.rows = 0

    def by_prefix(self, salt: str, tokens: Sequence[int]) -> Iterator[tuple[int, Slot]]:
        """(length of the common prefix, slot) of slots with this salt, longest first; none without a common token.

        A neighbour in the order shares at least what those beyond it share.
        """
        query = tuple(tokens)
        right = bisect_left(self._sorted, (salt, query, 0), key=lambda entry: entry[0])
        left = right - 1
        before, after = self._prefix_length(left, salt, query), self._prefix_length(right, salt, query)
        while before or after:
            if before >= after:
                yield before, self._sorted[left][1]
                left -= 1
                before = self._prefix_length(left, salt, query)
            else:
                yield after, self._sorted[right][1]
                right += 1
                after = self._prefix_length(right, salt, query)

    def _prefix_length(self, at: int, salt: str, query: tuple[int, ...]) -> int:
        """Length of the common prefix of the entry at this place; 0 where there is none."""
        if not 0 <= at < len(self._sorted):
            return 0
        other, tokens, _ = self._sorted[at][0]
        return common_prefix(tokens, query) if other == salt else 0


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of equal tokens at the beginning of both, which are of one type."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:  # equal up to low, different before high
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
