"""The slots of the target's memory, and which of them a sequence gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.target import Target
from spec_core.toolkit import dropped

LOST = 64
"""Rows that are sooner evaluated again than copied."""


def common_prefix(slot: Slot, tokens: list[int]) -> int:
    """Length of the common prefix of a slot and a prompt; it ends at the first row given as an embedding."""
    n = 0
    for held, wanted in zip(slot.tokens[: slot.evaluated], tokens, strict=False):
        if held != wanted or held < 0:
            break
        n += 1
    return n


@attrs.define(eq=False)
class Slots:
    """The slots of the target's memory. Free slots keep their rows, so that a prefix can be reused.

    count: max sequences. learners: plugins with a ``process`` hook; a slot is reused only up to the rows that all of
        them have seen. sharing: those whose data can be copied, so that several sequences begin with the same rows.
    kept: rows of free slots that may be kept beyond ``count`` slots. recurrent: a slot continues at checkpoints only.
    free: the least recently used first. taken: those of running sequences.
    """

    count: int
    reuse: bool
    learners: tuple[str, ...]
    sharing: frozenset[str] = frozenset()
    kept: int = 0
    recurrent: bool = False
    free: list[Slot] = attrs.field(factory=list)
    taken: set[Slot] = attrs.field(factory=set)

    def __iter__(self) -> Iterator[Slot]:
        """All slots that have memory."""
        yield from (*self.free, *self.taken)

    def admit(self, seq: Sequence, target: Target) -> bool:
        """Give the sequence a slot, and start it after the rows that can be reused; False if all are taken."""
        if len(self.taken) >= self.count:
            return False
        slot, want, source = self._best(seq, self.copies(seq, target))
        seq.slot = slot
        self.taken.add(slot)
        try:
            start = target.open(seq, want) if source is None else self._copied(seq, source, want, target)
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
        """Whether the rows of a prompt are those of another one, and are delivered to every method that it wants."""
        if one.cache_salt != other.cache_salt or one.tokens != other.tokens:
            return False
        return all(one.wants(name) for name in self.learners if other.wants(name))

    def _best(self, seq: Sequence, copies: bool) -> tuple[Slot, int, Slot | None]:
        """(slot, rows wanted, slot to copy them from): by the longest usable prefix.

        A free slot is continued itself, unless many rows of another text would be lost that there is room for. Without
        a prefix it is a new slot, or the least recently used.
        """
        reuse = self.reuse and seq.reuse
        usable = [max(0, self._usable(slot, seq)) if reuse else 0 for slot in self.free]
        want = max(usable, default=0)
        source, shared = self._shared(seq) if copies else (None, 0)
        if source is not None and (shared > want or self._worth(source, shared)):
            return Slot(), shared, source
        at = usable.index(want) if usable else -1
        if at < 0 or (not want and self._new) or (want <= LOST and self._worth(self.free[at], want)):
            return Slot(), 0, None
        return self.free.pop(at), want, None

    def _shared(self, seq: Sequence) -> tuple[Slot | None, int]:
        """The slot, free or taken, with the longest prefix that is worth a copy, and its length."""
        found = [(self._usable(slot, seq), slot) for slot in self]
        want, best = max(found, key=lambda pair: pair[0], default=(0, None))
        return (best, want) if want > LOST else (None, 0)

    @property
    def _new(self) -> bool:
        """Whether there may be another slot."""
        return bool(self.kept) or len(self.free) + len(self.taken) < self.count

    def _worth(self, slot: Slot, want: int) -> bool:
        """Whether the rows behind a prefix are kept for another sequence: they are many, and there is room for both."""
        return slot.evaluated - want > LOST and self._rows + want <= self.kept

    @property
    def _rows(self) -> int:
        """Rows in free slots; a short text counts as more, since it takes memory for more."""
        return sum(max(slot.evaluated, LOST) for slot in self.free)

    def _copied(self, seq: Sequence, source: Slot, want: int, target: Any) -> int:
        start = int(target.copy(seq, source, want))
        slot = seq.slot
        slot.stash = source.stash.fork()
        slot.tokens, slot.evaluated = source.tokens[:start], start
        slot.seen = {name: source.seen.get(name, 0) for name in self.sharing}
        return start

    def _evict(self, target: Target) -> None:
        """Drop the oldest free slots for which there is no room."""
        while self.free and len(self.free) + len(self.taken) > self.count and self._rows > self.kept:
            dropped.close(target, self.free.pop(0))

    def _usable(self, slot: Slot, seq: Sequence) -> int:
        if slot.salt != seq.cache_salt:
            return 0
        # A different token follows the last equal row now: pairs made from that row would be stale.
        want = common_prefix(slot, seq.tokens) - 1
        want = min([want, *(slot.seen.get(p, 0) for p in self.learners if seq.wants(p))])
        return max((p for p in slot.checkpoints if p <= want), default=0) if self.recurrent else want

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
            self.free.append(seq.slot)
            self._evict(target)

    def close(self, target: Target) -> None:
        """Free the memory of all slots, then raise the target's first error, if any."""
        errors = []
        for slot in self:
            try:
                dropped.close(target, slot)
            except Exception as error:
                errors.append(error)
        self.free.clear()
        self.taken.clear()
        if errors:
            raise errors[0]
