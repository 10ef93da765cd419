"""The draft model's memory of a sequence: a slot of its cache and the tokens in it."""

from __future__ import annotations

from typing import Any

import attrs
from torch import Tensor

from spec_core import Part, Sequence, Target
from spec_core.toolkit import AcceptanceEstimate, BranchPoint, DraftLimits, extension_estimate, open_sequence
from spec_core.toolkit import forward as forward_of

CHUNK = 512
"""Max rows of one sequence in one catch-up forward."""


@attrs.define(eq=False)
class DraftModelState:
    """A sequence in the draft model.

    held: tokens whose rows are in its cache, drafted ones included, also by methods that it extended. sure: how
    many of them are known to be the text of this step. estimate: its acceptance rate. reached: share of the drafts
    it extended that were accepted to their end. owner: the target's sequence with pictures that it holds, if any;
    prompt: the tokens of its prompt here.
    """

    seq: Sequence
    held: list[int] = attrs.field(factory=list)
    sure: int = 0
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)
    reached: AcceptanceEstimate = attrs.field(factory=extension_estimate)
    owner: Sequence | None = None
    prompt: list[int] = attrs.field(factory=list)

    def fade(self) -> None:
        self.estimate.fade()
        self.reached.fade()

    def chance(self, point: BranchPoint) -> float:
        """Probability that all tokens drafted before ``point`` are accepted."""
        return self.reached.value if point.chance is None else point.chance

    def end(self, start: int, last: int) -> int:
        """End of the next part of a backlog, at most ``last`` unless a picture ends later."""
        end = min(start + CHUNK, last)
        return end if self.seq.encoded is None else self.seq.encoded.part_end(start, end)

    def agree(self, tokens: list[int]) -> int:
        """Number of rows that are still valid for ``tokens``, and after which the draft model can go on.

        Never the last, which must be evaluated.
        """
        end = min(len(self.held), len(tokens) - 1)
        n = min(self.sure, end)
        if self.held[n:end] == tokens[n:end]:
            n = end
        while n < end and self.held[n] == tokens[n]:
            n += 1
        self.sure = self.seq.slot.start_at(n, self.seq.encoded)
        return self.sure


def open_state(model: Target) -> DraftModelState:
    """A new sequence with memory in the draft model, freed with the slot of the target's sequence."""
    return DraftModelState(open_sequence(model, close_when_dropped=True))


def forward(model: Target, rows: list[tuple[DraftModelState, list[int]]]) -> Tensor:
    """One forward: for each sequence all its tokens; returns the logits after each last token, [n, V].

    Rows that are already in the cache are not evaluated again.
    """
    parts = []
    for cache, tokens in rows:
        start = cache.agree(tokens)
        parts.append(Part(cache.seq, start, tokens[start:], decides=True))
        cache.held[start:] = tokens[start:]
    return forward_of(model, parts).output.logits


def draft_at_once(
    model: Any, rows: list[tuple[DraftModelState, list[int]]], limits: list[DraftLimits], keep: bool
) -> Any:
    """Drafts after each one's tokens in one call of a model that has ``draft``; what it answers.

    limits: of each. keep: with the rows [n, V] that tokens were chosen from.
    """
    starts = [cache.agree(tokens) for cache, tokens in rows]
    parts = [(cache.seq, start, tokens[start:]) for (cache, tokens), start in zip(rows, starts, strict=True)]
    result = model.draft(parts, limits, keep)
    for (cache, _), (_, start, pending), one in zip(rows, parts, result.found, strict=True):
        cache.held[start:] = pending + one.tokens[:-1]
    return result


def catch_up(model: Target, rows: list[tuple[DraftModelState, list[int]]]) -> tuple[int, int]:
    """Evaluate pictures, and long backlogs in chunks, until each fits in one chunk; returns (forwards, rows) used."""
    forwards = evaluated = 0
    while behind := [(s, t) for s, t in rows if len(t) - s.agree(t) > CHUNK or min(t[s.agree(t) :]) < 0]:
        parts = [(s, t[: s.end(s.agree(t), len(t) - 1)]) for s, t in behind]
        evaluated += sum(len(t) - s.agree(t) for s, t in parts)
        forward(model, parts)
        forwards += 1
    return forwards, evaluated
