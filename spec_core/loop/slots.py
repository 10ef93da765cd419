"""The slots of the target's memory, and which of them a sequence gets."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from spec_core.contract.sequence import Sequence, Slot
from spec_core.contract.target import Target
from spec_core.toolkit import dropped


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

    count: max slots. learners: plugins with a ``process`` hook; a slot is reused only up to the rows that all of them
        have seen.
    free: the least recently used first. taken: those of running sequences.
    """

    count: int
    reuse: bool
    learners: tuple[str, ...]
    free: list[Slot] = attrs.field(factory=list)
    taken: set[Slot] = attrs.field(factory=set)

    def __iter__(self) -> Iterator[Slot]:
        """All slots that have memory."""
        yield from (*self.free, *self.taken)

    def admit(self, seq: Sequence, target: Target) -> bool:
        """Give the sequence a slot, and start it after the rows that can be reused; False if all are taken."""
        if len(self.taken) >= self.count:
            return False
        slot, want = self._best(seq)
        seq.slot = slot
        self.taken.add(slot)
        try:
            start = target.open(seq, want)
        except BaseException:
            self.taken.discard(slot)
            target.close(seq)
            raise
        if start == 0:
            slot.stash = type(slot.stash)()
            slot.seen.clear()
        self._forget(slot, start)
        seq.evaluated = seq.delivered = seq.reused = start
        return True

    def _best(self, seq: Sequence) -> tuple[Slot, int]:
        """The slot with the longest usable prefix; if there is none, a new slot or the least recently used."""
        usable = [max(0, self._usable(slot, seq)) if self.reuse and seq.reuse else 0 for slot in self.free]
        want = max(usable, default=0)
        if not want and len(self.free) + len(self.taken) < self.count:
            return Slot(), 0
        return self.free.pop(usable.index(want)), want

    def _usable(self, slot: Slot, seq: Sequence) -> int:
        # A different token follows the last equal row now: pairs made from that row would be stale.
        want = common_prefix(slot, seq.tokens) - 1
        return min([want, *(slot.seen.get(p, 0) for p in self.learners if seq.wants(p))])

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
