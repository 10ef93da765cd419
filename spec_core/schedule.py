"""Who runs in a step, and on which slot: admission by prefix, pending rows, budgets."""

from __future__ import annotations

import attrs
import numpy as np
import torch

from spec_core.sequence import Sequence, Slot
from spec_core.settings import RunSettings
from spec_core.step import Part, Step
from spec_core.target import Target
from spec_core.values import Batch, Needs


def common_prefix(slot: Slot, tokens: list[int]) -> int:
    """Equal leading tokens of what a slot holds; comparison stops at a row given as an embedding."""
    n = 0
    for held, wanted in zip(slot.tokens[: slot.evaluated], tokens, strict=False):
        if held != wanted or held < 0:
            break
        n += 1
    return n


@attrs.define(eq=False)
class Slots:
    """The places of the target's memory: free ones keep what they hold, so that a prefix can be reused.

    learners: plugins that keep something about rows; a slot is reused only as far as all of them have seen.
    free: the least recently used first.
    """

    most: int
    reuse: bool
    learners: tuple[str, ...]
    free: list[Slot] = attrs.field(factory=list)
    taken: int = 0

    def admit(self, seq: Sequence, target: Target) -> bool:
        """Give the sequence a slot, and start it behind the rows that can be reused; False when all are taken."""
        if self.taken >= self.most:
            return False
        slot, want = self._best(seq)
        seq.slot = slot
        try:
            start = target.open(seq, want)
        except Exception:
            target.close(seq)
            raise
        if start == 0:
            slot.stash = type(slot.stash)()
            slot.seen.clear()
        self._forget(slot, start)
        seq.evaluated = seq.delivered = seq.reused = start
        self.taken += 1
        return True

    def _best(self, seq: Sequence) -> tuple[Slot, int]:
        """The slot with the longest usable prefix; if none helps a new one, or the least recently used."""
        usable = [max(0, self._usable(slot, seq)) if self.reuse else 0 for slot in self.free]
        want = max(usable, default=0)
        if not want and len(self.free) + self.taken < self.most:
            return Slot(), 0
        return self.free.pop(usable.index(want)), want

    def _usable(self, slot: Slot, seq: Sequence) -> int:
        # The last equal row is followed by another token than before: pairs made from it would be stale.
        want = common_prefix(slot, seq.tokens) - 1
        return min([want, *(slot.seen.get(p, 0) for p in self.learners if seq.wants(p))])

    def _forget(self, slot: Slot, start: int) -> None:
        del slot.tokens[start:]
        slot.evaluated = start
        slot.checkpoints = {p: c for p, c in slot.checkpoints.items() if p <= start}
        slot.seen = {name: min(position, start) for name, position in slot.seen.items()}

    def leave(self, seq: Sequence, target: Target) -> None:
        """Free the slot of a finished sequence; after an error its memory is not trusted and is dropped."""
        self.taken -= 1
        if seq.finish == "error":
            target.close(seq)
        else:
            self.free.append(seq.slot)


def plan(running: list[Sequence], target: Target, settings: RunSettings, drafting: bool, step: Step) -> Step:
    """Fill a step with parts: decoding sequences first, prompts share the room that is left."""
    room = settings.rows_max
    decoding = [s for s in running if len(s.tokens) > s.prompt]
    prompts = [s for s in running if len(s.tokens) == s.prompt]
    for i, seq in enumerate([*decoding, *prompts]):
        if room <= 0:
            break
        kept = max(0, len(decoding) - i - 1)  # nobody drafts away the row of a sequence behind it
        part = share(seq, room, kept, target.info.context, settings, drafting)
        room -= len(part.pending) + (part.nodes if step.trees else part.budget)
        step.add(part)
    return step


def share(seq: Sequence, room: int, kept: int, context: int, settings: RunSettings, drafting: bool) -> Part:
    """Pending rows of a sequence and how long a path may be drafted after them. kept: rows of others."""
    start = seq.evaluated
    most = min(max(settings.chunk, 1 + settings.draft_max), room)
    pending = seq.tokens[start : start + most]
    decides = start + len(pending) == len(seq.tokens)
    spare = room - kept - len(pending)
    budget = 0
    if drafting and decides and len(seq.tokens) > seq.prompt and seq.delivered == len(seq.tokens) - 1:
        budget = max(0, min(draft_limit(seq, settings), remaining(seq, context) - 1, spare))
    nodes = max(budget, min(settings.nodes_max, spare)) if budget else 0
    return Part(seq, start, pending, decides, budget, nodes)


def draft_limit(seq: Sequence, settings: RunSettings) -> int:
    return settings.draft_max if seq.draft_max is None else min(seq.draft_max, settings.draft_max)


def remaining(seq: Sequence, context: int) -> int:
    """Output tokens that may still come."""
    return min(seq.limit - (len(seq.tokens) - seq.prompt), context - len(seq.tokens))


def batch(step: Step, needs: Needs, device: str) -> Batch:
    """Lay the rows of all parts out: one transfer for tokens and positions together."""
    tokens: list[int] = []
    positions: list[int] = []
    embeds = {}
    at = 0
    for part in step.parts:
        part.row = len(tokens)
        for position in part.seq.embeds:
            if part.start <= position < part.end:
                embeds[part.row + position - part.start] = part.seq.embeds[position]
        tokens += part.pending
        positions += range(part.start, part.end)
        part.spec = len(tokens)
        if part.draft is not None:
            tokens += part.draft.ids
            positions += [part.end - 1 + depth for depth in part.draft.depths]
        part.at = part.spec - 1 if needs.all_logits else at
        at += (1 + part.drafted) if part.decides else 0
    host = np.array([tokens, positions], dtype=np.int64)  # half the time of torch.tensor on lists
    both = torch.from_numpy(host).to(device, non_blocking=True)
    return Batch(both[0], both[1], tuple(step.parts), embeds)
