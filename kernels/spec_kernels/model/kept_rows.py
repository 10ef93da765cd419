"""Which rows a cache keeps: layers with a window give back rows that nothing can read any more.

Layers without a window keep every row. Layers with one keep rows from position ``first`` on, in memory of their own
that has room for ``recent`` positions. When it is full, the rows that are still needed move to its beginning, so that
position p is always in place p - first, and a forward reads and writes them as if all rows were there.

Needed are the rows that the next forward sees: a window before the position at which it starts. ``rewind`` more are
kept, so that a text can go on at an earlier position. Besides these, a copy of the rows before one earlier position,
the end of a prompt, is kept: another text may begin with the same prompt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

STEP = 64
"""``first`` is a multiple of this: positions whose factors are rounded together in caches of bytes."""
AHEAD = 128
"""Min positions of a text for which rows do not move again."""


@dataclass(frozen=True)
class Horizon:
    """What a sequence may still need of its rows.

    start: the first position that is evaluated next; rows from there on are replaced. rewind: how many positions
    before it the text may go on at instead. mark: a position up to ``start`` at which another text may go on. limit:
    positions beyond which no memory is taken in advance; 0: none.
    """

    start: int
    rewind: int = 0
    mark: int = 0
    limit: int = 0


@dataclass(frozen=True)
class MarkedRows:
    """A copy of the rows ``first`` to ``end`` - 1 of layers with a window. valid: the rows before it belong to the text
    that the cache holds now."""

    first: int
    end: int
    memory: Any
    valid: int


class KeptRows(ABC):
    """The rows of a cache by position. length: positions that layers without a window have room for."""

    length: int

    def __init__(self, windows: Iterable[int]) -> None:
        """windows: of all layers; 0: a layer without one."""
        self.window = max(windows, default=0)
        self.first, self.recent = 0, 0
        self.marked: MarkedRows | None = None

    # what an executor does with its memory

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all rows, marked ones included."""

    @abstractmethod
    def grow(self, length: int) -> None:
        """Enlarge layers without a window to ``length`` positions; contents are kept."""

    def _positions_to_take(self, needed: int, now: int, limit: int = 0) -> int:
        """Positions for which memory is taken where some are ``needed``: twice the ones of ``now``, so that few steps
        allocate, up to ``limit``, 0: any number."""
        return max(needed, min(2 * now, limit or 2 * now))

    def _begin_at(self, first: int) -> None:
        """Let the memory of layers with a window begin at another position; its contents are void."""
        self.first = first

    @abstractmethod
    def _move(self, first: int, recent: int) -> None:
        """Keep positions from ``first`` on, which is not before the first position now, in layers with a window.

        recent: for how many there is room then, not fewer than now. Sets ``first`` and ``recent``.
        """

    @abstractmethod
    def _copy_out(self, first: int, end: int) -> Any:
        """A copy of the rows ``first`` to ``end`` - 1 of layers with a window."""

    @abstractmethod
    def _copy_in(self, marked: MarkedRows) -> None:
        """Put the rows of a copy to the beginning of the memory of layers with a window, which has room for them."""

    # positions

    @property
    def oldest(self) -> int:
        """The lowest position at which the text can go on with the rows that are kept; also 0 is possible."""
        return self.first + self.window - 1 if self.first else 0

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """The positions at which a text can go on, apart from 0, as ranges with both ends; empty means all."""
        if not self.first:
            return ()
        marked = self.marked
        before = () if marked is None else ((marked.first + self.window - 1 if marked.first else 1, marked.valid),)
        return (*(one for one in before if one[0] <= one[1]), (self.oldest, self.length))

    @property
    def end(self) -> int:
        """The end of the positions that all layers have room for."""
        return min(self.length, self.first + self.recent) if self.window else self.length

    def reserve(self, length: int, horizon: Horizon | None = None) -> bool:
        """Make room for positions up to ``length`` - 1; whether memory was taken.

        horizon: None keeps all rows. Raises ValueError where the text cannot go on at the horizon.
        """
        if horizon is not None and self.window:
            self._go_on(horizon.start)
            if self.first:
                self._mark(horizon)
        if length <= self.end:
            return False
        if grows := length > self.length:
            limit = 0 if horizon is None else horizon.limit
            self.grow(self._positions_to_take(length, self.length, limit))
        if self.window and length > self.first + self.recent:
            grows = self._make_room(length, horizon) or grows
        return grows

    def check_read(self, start: int) -> None:
        """Raise ValueError where rows from ``start`` on of a layer with a window are not there any more."""
        if start < self.first:
            raise ValueError(
                f"row {start} was read in a layer with a window, which keeps the rows from {self.first} on; read from "
                "there on"
            )

    def _go_on(self, start: int) -> None:
        """Let the rows before ``start`` belong to the text; later ones are void."""
        marked = self.marked
        if start < self.oldest:
            if start == 0:
                self._begin_at(0)
            elif marked is not None and any(low <= start <= high for low, high in self.starts[:-1]):
                self._restore(marked)
            else:
                raise ValueError(
                    f"the text cannot go on at position {start}: layers with a window kept the rows from "
                    f"{self.first} on; evaluate it from position 0"
                )
        if marked is not None and start < marked.valid:
            self.marked = replace(marked, valid=start) if start > marked.first else None

    def _restore(self, marked: MarkedRows) -> None:
        self._begin_at(marked.first)
        self._move(self.first, max(self.recent, round_up(marked.end - marked.first)))
        self._copy_in(marked)

    def _make_room(self, length: int, horizon: Horizon | None) -> bool:
        """Move the rows that are needed, to other memory if there is too little."""
        if horizon is None:
            self._move(self.first, self._positions_to_take(round_up(length - self.first), self.recent))
            return True
        first = max(self.first, first_needed(horizon.start, self.window, horizon.rewind))
        room = round_up(max(length, horizon.start + AHEAD) - first)
        if first_needed(horizon.mark, self.window, horizon.rewind) < first:
            self._mark(horizon)
        grows = room > self.recent
        if grows:
            rows = max(length - horizon.start, AHEAD)
            room = self._positions_to_take(room, self.recent, recent_max(self.window, horizon.rewind, rows))
        self._move(first, max(room, self.recent))
        return grows

    def _mark(self, horizon: Horizon) -> None:
        """Copy the rows before the mark, once the text has reached it.

        A text that has given rows back is copied from at once, so that its memory does not grow while it is generated.
        """
        at = horizon.mark
        if (self.marked is not None and self.marked.valid == at) or not max(1, self.oldest) <= at <= horizon.start:
            return
        low = max(self.first, first_needed(at, self.window, horizon.rewind))
        self.marked = MarkedRows(low, at, self._copy_out(low, at), at)


def round_up(count: int) -> int:
    """A number of positions, rounded up to whole steps."""
    return -(-count // STEP) * STEP


def first_needed(start: int, window: int, rewind: int) -> int:
    """The first position, a multiple of STEP, that is needed to go on at ``start`` or ``rewind`` positions before."""
    return max(0, start - rewind - window + 1) // STEP * STEP


def recent_max(window: int, rewind: int, rows: int) -> int:
    """Max positions that layers with a window have memory for. rows: of a step of the sequence."""
    return round_up(window - 1 + rewind + STEP - 1 + max(rows, AHEAD))


def kept_max(window: int, rewind: int, page: int = STEP) -> int:
    """Max positions of a sequence in layers with a window, at its end and at its mark, without a step's.

    page: positions of a piece of their memory.
    """
    ends = 4 * (page - STEP)  # pages begin before and end after the rows, at the text's end and at its mark
    return recent_max(window, rewind, AHEAD) - AHEAD + round_up(window - 1 + rewind + STEP - 1) + ends
