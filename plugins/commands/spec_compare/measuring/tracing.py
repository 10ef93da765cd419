"""Traces: which method drafted each token, with which confidence, and what was accepted."""

from __future__ import annotations

import attrs

from spec_compare.records.record import PromptSteps, Trace
from spec_core import Part, Step, Target
from spec_core.toolkit import stream_after


@attrs.define(eq=False)
class Drafts:
    """The drafts of one sequence's steps. Their texts are decoded after the lap, outside the measured time."""

    trace: Trace = attrs.field(factory=Trace)

    def add(self, part: Part, step: Step) -> None:
        """Copies what is on the host; tensors of the draft are not kept."""
        draft, trace = part.draft, self.trace
        trace.budget.append(part.budget)
        trace.ids.append([] if draft is None else list(draft.ids))
        trace.parents.append(None if draft is None or draft.parents is None else list(draft.parents))
        trace.sources.append([] if draft is None else part.sources)
        trace.confidence.append(None if draft is None or draft.confidence is None else list(draft.confidence))
        trace.path.append([] if part.full_verdict is None else list(part.full_verdict.path[: len(part.emitted)]))
        limits = part.limits or {}
        trace.limits.append({} if part.limits is None else {name: part.length_max(name) for name in step.methods})
        trace.seconds.append(dict((step.record or step).seconds))
        trace.prices.append({name: limit.price for name, limit in limits.items() if limit.price is not None})
        trace.priced.append(sorted(step.priced))
        trace.pieces.append([len(piece.draft) for piece in part.pieces])
        trace.uncut.append([] if part.full_verdict is None else list(part.full_verdict.path))
        trace.step.append(step.number)
        trace.before.append(None if step.last_record is None else step.last_record.total_seconds)
        trace.start.append(part.start)
        trace.pending.append(len(part.pending))

    def decode(self, target: Target) -> Trace:
        """The trace with the texts of its tokens."""
        self.trace.texts = [[token_text(token, target) for token in ids] for ids in self.trace.ids]
        return self.trace


def add_prompt_step(steps: PromptSteps, part: Part, step: Step) -> None:
    """Add a step before, or with, the first token of a sequence."""
    steps.step.append(step.number)
    steps.before.append(None if step.last_record is None else step.last_record.total_seconds)
    steps.start.append(part.start)
    steps.pending.append(len(part.pending))
    steps.seconds.append(dict((step.record or step).seconds))


def token_text(token: int, target: Target) -> str:
    """The text of one token; incomplete characters become replacement characters."""
    words = target.tokenizer
    return "" if words is None else words.token_bytes(token).decode("utf-8", "replace")


def pieces(tokens: list[int], target: Target, before: list[int]) -> list[str] | None:
    """The text that each token completes after the tokens ``before``; None without a tokenizer."""
    if target.tokenizer is None:
        return None
    stream = stream_after(target.tokenizer, before)
    texts = [stream.put(token) for token in tokens]
    if texts:
        texts[-1] += stream.end()
    return texts
