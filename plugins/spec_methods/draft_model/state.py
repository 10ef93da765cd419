"""The draft model's own memory of a sequence: a slot of its cache and the tokens it holds."""

from __future__ import annotations

from typing import Any

import attrs
from torch import Tensor

from spec_core import Part, Sequence, Target
from spec_core.toolkit import AcceptanceEstimate, DraftLimits, open_sequence
from spec_core.toolkit import forward as forward_of

CHUNK = 512
"""Most rows of one sequence in one catch-up forward."""


@attrs.define(eq=False)
class DraftModelState:
    """A sequence as the draft model sees it.

    held: tokens whose rows its cache has. sure: how many of them are known to be committed text.
    estimate: its acceptance rate.
    """

    seq: Sequence
    held: list[int] = attrs.field(factory=list)
    sure: int = 0
    estimate: AcceptanceEstimate = attrs.field(factory=AcceptanceEstimate)

    def agree(self, tokens: list[int]) -> int:
        """Rows that are still right for ``tokens``, at most all but the last, which must be evaluated."""
        most = min(len(self.held), len(tokens) - 1)
        n = min(self.sure, most)
        if self.held[n:most] == tokens[n:most]:
            n = most
        while n < most and self.held[n] == tokens[n]:
            n += 1
        self.sure = n
        return n


def open_state(model: Target) -> DraftModelState:
    """A new sequence with memory in the draft model, given back with the slot of the target's sequence."""
    return DraftModelState(open_sequence(model, close_when_dropped=True))


def forward(model: Target, rows: list[tuple[DraftModelState, list[int]]]) -> Tensor:
    """One forward: for each sequence the tokens it is to hold; returns the logits after each one's last, [n, V].

    Rows that the cache has already are not evaluated again.
    """
    parts = []
    for shadow, tokens in rows:
        start = shadow.agree(tokens)
        parts.append(Part(shadow.seq, start, tokens[start:], decides=True))
        shadow.held[start:] = tokens[start:]
    return forward_of(model, parts).output.logits


def continued(model: Any, rows: list[tuple[DraftModelState, list[int]]], limits: list[DraftLimits], keep: bool) -> Any:
    """Drafts after each one's tokens in one call of a model that has ``draft``; what it answers.

    limits: of each. keep: with the rows [n, V] that tokens were chosen from.
    """
    starts = [shadow.agree(tokens) for shadow, tokens in rows]
    parts = [(shadow.seq, start, tokens[start:]) for (shadow, tokens), start in zip(rows, starts, strict=True)]
    made = model.draft(parts, limits, keep)
    for (shadow, _), (_, start, pending), one in zip(rows, parts, made.found, strict=True):
        shadow.held[start:] = pending + one.tokens[:-1]
    return made


def catch_up(model: Target, rows: list[tuple[DraftModelState, list[int]]]) -> tuple[int, int]:
    """Evaluate long backlogs in chunks, until each is at most one chunk; returns (forwards, rows) spent."""
    forwards = evaluated = 0
    while behind := [(s, t) for s, t in rows if len(t) - s.agree(t) > CHUNK]:
        parts = [(s, t[: s.agree(t) + CHUNK]) for s, t in behind]
        evaluated += sum(len(t) - s.agree(t) for s, t in parts)
        forward(model, parts)
        forwards += 1
    return forwards, evaluated
