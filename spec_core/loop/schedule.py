"""Which sequences wait, run and take part in a step; their pending rows and budgets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

import attrs

from spec_core.contract.batch import Part
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.errors import FOREIGN, as_exception
from spec_core.loop.slots import COPY_ROWS_MIN, Slots
from spec_core.settings.tables import RunSettings

PREFILL_ROWS_MIN = 64
"""Rows of a prompt above which its last row has a step of its own, if the target has recurrent state."""


@attrs.define(eq=False)
class Scheduler:
    """The sequences of a run: waiting for a slot, in the order of submission, and running.

    ended: called with every sequence that leaves, after it was removed from both lists.
    dropped: sequences whose iterator was dropped.
    """

    target: Target
    slots: Slots
    ended: Callable[[Sequence], None]
    waiting: deque[Sequence] = attrs.field(factory=deque)
    running: list[Sequence] = attrs.field(factory=list)
    dropped: deque[Sequence] = attrs.field(factory=deque)
    numbers: count[int] = attrs.field(factory=count)

    def add(self, seq: Sequence) -> None:
        """Queue a sequence; one with no token to generate ends at once."""
        seq.number = next(self.numbers)
        if seq.max_tokens == 0:
            seq.finish = "length"
            self.ended(seq)
        else:
            behind = (i for i, other in enumerate(self.waiting) if other.priority > seq.priority)
            self.waiting.insert(next(behind, len(self.waiting)), seq)

    def drop(self, seq: Sequence) -> None:
        """End a sequence whose iterator is gone, at the next step. Takes no lock: the garbage collector may call it."""
        if seq.finish is None:
            self.dropped.append(seq)

    def admit(self) -> None:
        """Remove cancelled sequences and give slots to waiting ones."""
        while self.dropped:
            seq = self.dropped.popleft()
            seq.finish = seq.finish or "cancelled"
        self.release()
        for seq in list(self.waiting):
            if self._soon_shared(seq):
                continue
            if not self._enter(seq):
                break
            self.waiting.remove(seq)

    def _soon_shared(self, seq: Sequence) -> bool:
        """Whether a running sequence evaluates the same prompt: its rows are sooner copied than made twice."""
        if len(seq.tokens) <= COPY_ROWS_MIN + 1 or not self.slots.copies(seq, self.target):
            return False
        return any(other.evaluated < other.prompt_len and self.slots.same_rows(other, seq) for other in self.running)

    def _enter(self, seq: Sequence) -> bool:
        """Give a waiting sequence a slot; False if all are taken. If there is no memory, it ends with that error."""
        try:
            entered = self.slots.admit(seq, self.target)
        except FOREIGN as error:
            seq.finish, seq.error = "error", as_exception(error)
            self.ended(seq)
            return True
        if entered:
            self.running.append(seq)
        return entered

    def release(self) -> None:
        """Remove finished sequences."""
        for seq in list(self.running):
            if seq.finish:
                self._leave(seq)
        for seq in list(self.waiting):
            if seq.finish:
                self.waiting.remove(seq)
                self.ended(seq)

    def _leave(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self.slots.leave(seq, self.target)
        self.ended(seq)

    def after(self, step: Step) -> None:
        """Record how far plugins have seen the rows of each slot; remove sequences that ended in this step."""
        for part in step.parts:
            seq = part.seq
            for name in self.slots.learners:
                if seq.wants(name):
                    seq.slot.seen[name] = seq.delivered
            if seq.finish:
                self._leave(seq)

    def cancel_all(self) -> None:
        """End every sequence now."""
        for seq in (*self.running, *self.waiting):
            seq.finish = seq.finish or "cancelled"
        self.release()

    def fail_running(self, error: BaseException) -> None:
        """After an interrupted step the contents of slots are unknown: every running sequence ends with the error."""
        for seq in list(self.running):
            seq.finish = "error"
            if seq.error is None and isinstance(error, Exception):
                seq.error = error
            self._leave(seq)


def plan(running: list[Sequence], target: Target, settings: RunSettings, drafters: frozenset[str], step: Step) -> Step:
    """Fill a step with parts: decoding sequences first; prompts share the remaining rows. drafters: may draft in it."""
    room = settings.max_batched_tokens
    decoding: list[Sequence] = []
    prompts: list[Sequence] = []
    for seq in running:
        (decoding if len(seq.tokens) > seq.prompt_len else prompts).append(seq)
    kept = len(decoding)
    for seq in decoding:
        if room <= 0:
            break
        kept = max(0, kept - 1)  # a draft leaves rows for later sequences
        part = share(seq, room, kept, target, settings, drafters)
        if part.budget and step.probing:
            reserve_probes(part, room - kept, target.info.context, step)
        room -= len(part.pending) + (part.nodes if step.trees else part.budget) + part.probes_max
        step.add(part)
    if prompts:
        if decoding and settings.prefill_budget:
            room = min(room, settings.prefill_budget)
        for seq, rows in share_rows(prompts, room, settings).items():
            step.add(share(seq, rows, 0, target, settings, drafters))
    return step


def share_rows(prompts: list[Sequence], room: int, settings: RunSettings) -> dict[Sequence, int]:
    """Rows of this step for every prompt that gets some.

    Half of the room is kept for the prompt that has run longest, the rest goes to the shortest remainders first: a
    short prompt does not wait for long ones, and no prompt waits without end.
    """
    rows_max = chunk(settings)
    needs = {seq: min(len(seq.tokens) - seq.evaluated, rows_max) for seq in prompts}
    rows, kept = dict.fromkeys(prompts, 0), -(-room // 2)
    order = sorted(prompts[1:], key=lambda seq: needs[seq])
    for seq, limit in [*((s, kept) for s in prompts[:1]), *((s, room) for s in (*order, *prompts[:1]))]:
        more = max(0, min(needs[seq] - rows[seq], limit, room))
        rows[seq] += more
        room -= more
    return {seq: n for seq, n in rows.items() if n}


def chunk(settings: RunSettings) -> int:
    """Max pending rows of one sequence in one step."""
    return max(settings.prefill_chunk, 1 + settings.draft_max)


def pauses(seq: Sequence, end: int, target: Target) -> bool:
    """Whether a step leaves the last row of a prompt to the next one.

    Recurrent state can be continued only where it was kept, at the end of a step, and another prompt with the same
    beginning needs it one row before its first token that differs. A short prompt is cheaper to evaluate again.
    """
    return end == seq.prompt_len and end - seq.evaluated > PREFILL_ROWS_MIN and "recurrent" in target.info.states


def share(seq: Sequence, room: int, kept: int, target: Target, settings: RunSettings, drafters: frozenset[str]) -> Part:
    """Pending rows of a sequence and the longest path that may be drafted. kept: rows reserved for others."""
    start, there, context = seq.evaluated, len(seq.tokens), target.info.context
    pending_max = min(chunk(settings), room)
    pending = seq.tokens[start : start + pending_max]
    if seq.encoded is not None and seq.encoded.blocks and start < seq.prompt_len:
        pending = seq.tokens[start : seq.encoded.part_end(start, start + len(pending))]
    if pauses(seq, start + len(pending), target):
        pending = pending[:-1]
    decides = start + len(pending) == there
    drafted = drafters and (seq.methods is None or not drafters.isdisjoint(seq.methods))
    if not (drafted and decides and there > seq.prompt_len and seq.delivered == there - 1):
        return Part(seq, start, pending, decides)
    spare = room - kept - len(pending)
    budget = max(0, min(draft_limit(seq, settings), remaining_tokens(seq, context) - 1, spare))
    nodes = max(budget, min(settings.nodes_max, spare)) if budget else 0
    return Part(seq, start, pending, decides, budget, nodes)


def reserve_probes(part: Part, room: int, context: int, step: Step) -> None:
    """Reserve the rows that methods may probe for a sequence: all of them, or none if they do not fit."""
    probes = sum(count for name, count in step.probing.items() if part.seq.wants(name))
    branches = part.nodes if step.trees else part.budget
    if len(part.pending) + branches + probes <= room and part.end + part.budget + probes < context:
        part.probes_max = probes


def draft_limit(seq: Sequence, settings: RunSettings) -> int:
    return settings.draft_max if seq.draft_max is None else min(seq.draft_max, settings.draft_max)


def remaining_tokens(seq: Sequence, context: int) -> int:
    """How many output tokens may still follow."""
    return min(seq.max_tokens + seq.prompt_len, context) - len(seq.tokens)


def has_drafts(parts: list[Part]) -> bool:
    """Whether any sequence has a draft, or rows that are probed."""
    for part in parts:  # noqa: SIM110 - a generator takes three times as long, and every step asks
        if part.draft is not None or part.probes:
            return True
    return False


def of_prompts(parts: list[Part]) -> bool:
    """Whether rows of a prompt are evaluated."""
    for part in parts:  # noqa: SIM110 - as above
        if part.start < part.seq.prompt_len:
            return True
    return False
