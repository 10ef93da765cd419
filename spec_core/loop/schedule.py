"""The parts of a step: which sequences take part, their pending rows, their budgets."""

from __future__ import annotations

from spec_core.contract.batch import Part
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.settings.tables import RunSettings


def plan(running: list[Sequence], target: Target, settings: RunSettings, drafting: bool, step: Step) -> Step:
    """Fill a step with parts: decoding sequences first, prompts share the room that is left."""
    room, context = settings.max_batched_tokens, target.info.context
    decoding = [s for s in running if len(s.tokens) > s.prompt_len]
    prompts = [s for s in running if len(s.tokens) == s.prompt_len]
    kept = len(decoding)
    for seq in [*decoding, *prompts]:
        if room <= 0:
            break
        kept = max(0, kept - 1)  # a draft leaves room for the rows of later sequences
        part = share(seq, room, kept, context, settings, drafting)
        room -= len(part.pending) + (part.nodes if step.trees else part.budget)
        step.add(part)
    return step


def share(seq: Sequence, room: int, kept: int, context: int, settings: RunSettings, drafting: bool) -> Part:
    """Pending rows of a sequence and how long a path may be drafted after them. kept: rows of others."""
    start, there = seq.evaluated, len(seq.tokens)
    most = min(max(settings.prefill_chunk, 1 + settings.draft_max), room)
    pending = seq.tokens[start : start + most]
    decides = start + len(pending) == there
    if not (drafting and decides and there > seq.prompt_len and seq.delivered == there - 1):
        return Part(seq, start, pending, decides)
    spare = room - kept - len(pending)
    budget = max(0, min(draft_limit(seq, settings), remaining(seq, context) - 1, spare))
    nodes = max(budget, min(settings.nodes_max, spare)) if budget else 0
    return Part(seq, start, pending, decides, budget, nodes)


def draft_limit(seq: Sequence, settings: RunSettings) -> int:
    return settings.draft_max if seq.draft_max is None else min(seq.draft_max, settings.draft_max)


def remaining(seq: Sequence, context: int) -> int:
    """Output tokens that may still come."""
    return min(seq.max_tokens + seq.prompt_len, context) - len(seq.tokens)
