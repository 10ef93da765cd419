"""The slots of the target's memory, and which of them a sequence gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.target import Target
from spec_core.errors import FOREIGN
from spec_core.loop.free_slots import FreeSlots, common_prefix
from spec_core.toolkit import finalizers

COPY_ROWS_MIN = 64
"""Length of prefixes that are evaluated again instead of copied."""


@attrs.define(eq=False)
class Slots:
    """The slots of the target's memory. Free slots keep their rows, so that a prefix can be reused.

    count: max sequences. learners: plugins with a ``process`` hook; a slot is reused only up to the rows that all of
        them have seen. sharing: those whose data can be copied, so that several sequences begin with the same rows.
    kept: rows of free slots that may be kept beyond ``count`` slots. recurrent: a slot continues at checkpoints only.
    taken: the slots of running sequences.
    """

    count: int
    reuse: bool
    learners: tuple[str, ...]
    sharing: frozenset[str] = frozenset()
    kept: int = 0
    recurrent: bool = False
    free: FreeSlots = attrs.field(factory=FreeSlots)
    taken: set[Slot] = attrs.field(factory=set)

    def __iter__(self) -> Iterator[Slot]:
        """All slots that have memory."""
        yield from (*self.free, *self.taken)

    def admit(self, seq: Sequence, target: Target) -> bool:
        """Give the sequence a slot, and start it after the rows that can be reused; False if all are taken."""
        if len(self.taken) >= self.count:
            return False
        slot, want, source = self._choose_slot(seq, self.copies(seq, target))
        seq.slot = slot
        self.taken.add(slot)
        try:
            start = target.open(seq, want) if source is None else self._copy_rows(seq, source, want, target)
        except BaseException:
            self.taken.discard(slot)
            target.close(seq)
            raise
        if start == 0:
            slot.stash = type(slot.stash)()
            slot.seen.clear()
        slot.salt = seq.cache_salt
        self._forget(slot, start)
        self._evict(target)
        seq.evaluated = seq.delivered = seq.reused = start
        return True

    def copies(self, seq: Sequence, target: Target) -> bool:
        """Whether rows of another sequence may be copied for this one: the target and every method that learns can."""
        learned = all(name in self.sharing for name in self.learners if seq.wants(name))
        return self.reuse and seq.reuse and learned and hasattr(target, "copy")

    def same_rows(self, one: Sequence, other: Sequence) -> bool:
        """Whether the rows of a prompt are another one's, and are delivered to every method that it wants."""
        if one.cache_salt != other.cache_salt or one.tokens != other.tokens:
            return False
        return all(one.wants(name) for name in self.learners if other.wants(name))

    def _choose_slot(self, seq: Sequence, copies: bool) -> tuple[Slot, int, Slot | None]:
        """(slot, rows wanted, slot to copy them from): by the longest usable prefix.

        A free slot is continued itself, unless many rows of another text would be lost that there is room for. Without
        a prefix it is a new slot, or the least recently used.
        """
        want, free = self._longest(seq) if self.reuse and seq.reuse else (0, None)
        source, shared = self._longest_copy(seq, want, free) if copies else (None, 0)
        if source is not None and (shared > want or self._is_worth_keeping(source, shared)):
            return Slot(), shared, source
        if free is None and self.free:
            free = self.free.oldest()
        if (
            free is None
            or (not want and self._can_add)
            or (want <= COPY_ROWS_MIN and self._is_worth_keeping(free, want))
        ):
            return Slot(), 0, None
        self.free.remove(free)
        return free, want, None

    def _longest(self, seq: Sequence) -> tuple[int, Slot | None]:
        """The longest usable prefix among free slots, and its slot."""
        best, best_slot = 0, None
        for length, slot in self.free.by_prefix(seq.cache_salt, seq.tokens):
            if length - 1 <= best:
                break
            if (usable := self._reusable_rows(slot, length, seq)) > best:
                best, best_slot = usable, slot
        return best, best_slot

    def _longest_copy(self, seq: Sequence, want: int, free: Slot | None) -> tuple[Slot | None, int]:
        """The slot, free or taken, with the longest prefix that is worth a copy, and its length."""
        for slot in self.taken:
            if slot.salt == seq.cache_salt:
                usable = self._reusable_rows(slot, common_prefix(slot.tokens[: slot.evaluated], seq.tokens), seq)
                if usable > want:
                    want, free = usable, slot
        return (free, want) if want > COPY_ROWS_MIN else (None, 0)

    @property
    def _can_add(self) -> bool:
        """Whether there may be another slot."""
        return bool(self.kept) or len(self.free) + len(self.taken) < self.count

    def _is_worth_keeping(self, slot: Slot, want: int) -> bool:
        """Whether the rows after a prefix are kept for another sequence: they are many, and there is room for both."""
        return slot.evaluated - want > COPY_ROWS_MIN and self.free.rows + want <= self.kept

    def _copy_rows(self, seq: Sequence, source: Slot, want: int, target: Any) -> int:
        start = int(target.copy(seq, source, want))
        slot = seq.slot
        slot.stash = source.stash.fork()
        slot.tokens, slot.evaluated = source.tokens[:start], start
        slot.seen = {name: source.seen.get(name, 0) for name in self.sharing}
        return start

    def _evict(self, target: Target) -> None:
        """Drop the oldest free slots for which there is no room."""
        while self.free and len(self.free) + len(self.taken) > self.count and self.free.rows > self.kept:
            slot = self.free.oldest()
            self.free.remove(slot)
            finalizers.close_slot(target, slot)

    def _reusable_rows(self, slot: Slot, length: int, seq: Sequence) -> int:
        """Rows of a slot that can be continued. length: of the common prefix."""
        # A different token follows the last equal row now: pairs made from that row would be stale.
        want = max(0, length - 1)
        want = min([want, *(slot.seen.get(p, 0) for p in self.learners if seq.wants(p))])
        want = slot.start_at(want, seq.encoded)
        if not self.recurrent:
            return want
        return max((p for p in slot.checkpoints if p <= want and slot.start_at(p) == p), default=0)

    def _forget(self, slot: Slot, start: int) -> None:
        del slot.tokens[start:]
        slot.evaluated = start
        slot.checkpoints = {p: c for p, c in slot.checkpoints.items() if p <= start}
        slot.seen = {name: min(position, start) for name, position in slot.seen.items()}

    def leave(self, seq: Sequence, target: Target) -> None:
        """Free the slot of a finished sequence; after an error its contents are unknown and its memory is dropped."""
        self.taken.discard(seq.slot)
        if seq.finish == "error":
            target.close(seq)
        else:
            self.free.add(seq.slot)
            self._evict(target)

    def close(self, target: Target) -> None:
        """Free the memory of all slots, then raise the target's first error, if any."""
        errors = []
        for slot in self:
            try:
                finalizers.close_slot(target, slot)
            except FOREIGN as error:
                errors.append(error)
        self.free.clear()
        self.taken.clear()
        if errors:
            raise errors[0]
