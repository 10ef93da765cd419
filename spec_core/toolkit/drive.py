"""Runs a target's forward directly: to score a text, or to run a method's own draft model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.batch import Batch, Part, TargetOutput
from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.target import Target
from spec_core.contract.values import Draft, Needs
from spec_core.errors import UsageError, quote
from spec_core.sampling.parameters import Sampling
from spec_core.sampling.stop import Stop
from spec_core.toolkit.finalizers import close_on_collect

PLAIN = Needs()
INT64 = np.dtype(np.int64)


def open_sequence(
    target: Target, embeds: Mapping[int, Tensor] | None = None, close_when_dropped: bool = False
) -> Sequence:
    """An empty sequence with memory in the target; ``target.close(seq)`` frees the memory.

    embeds: {position: [D]} rows that will be given as embeddings. close_when_dropped: close it when it is garbage
    collected; do not close it yourself. Raises SpecError if there is not enough memory.
    """
    seq = Sequence([], 0, 0, Sampling(), Stop(), embeds=embeds or {})
    target.open(seq, 0)
    if close_when_dropped:
        close_on_collect(seq, target, (seq.slot,))
    return seq


def forward(target: Target, parts: Iterable[Part], needs: Needs = PLAIN) -> Step:
    """One forward over these parts; ``step.output`` is its output, ``step.batch`` its rows.

    The output is a view into the target's memory: valid until its next forward. The sequences are not changed.
    """
    step = Step(target, {}, trees=needs.trees)
    for part in parts:
        step.add(part)
    step.batch = batch(step, needs, target.info.row_device)
    step.output = target.forward(step.batch, needs)
    return step


def evaluate(target: Target, tokens: list[int], needs: Needs = PLAIN) -> TargetOutput:
    """One forward over a text from position 0, in a new sequence that is closed afterwards.

    ``Needs(all_logits=True)``: logits are [T, V]. Raises UsageError for tokens that the target cannot evaluate.
    """
    _check(tokens, target)
    seq = open_sequence(target)
    try:
        return forward(target, [Part(seq, 0, tokens, decides=True)], needs).output
    finally:
        target.close(seq)


def _check(tokens: list[int], target: Target) -> None:
    vocab, context = target.info.vocab, target.info.context
    if not 0 < len(tokens) <= context:
        raise UsageError(
            f"{len(tokens)} tokens, the context is {context}",
            hint="give fewer tokens, or a larger --context" if tokens else "give at least one token",
        )
    for at, token in enumerate(tokens):
        if not 0 <= token < vocab:
            raise UsageError(
                f"token {quote(token)} at position {at} is outside the vocabulary of {vocab}",
                hint="tokenize the text with this model's own tokenizer",
            )


def batch(step: Step, needs: Needs, device: str) -> Batch:
    """Lay out the rows of all parts; tokens and positions take one transfer to a device."""
    tokens: list[int] = []
    positions: list[int] = []
    embeds: dict[int, Tensor] = {}
    at = 0
    for part in step.parts:
        part.row, end = len(tokens), part.end
        if part.seq.embeds:
            embeds.update(_embedded_rows(part))
        tokens += hide_numbers(part.seq, part.pending)
        positions += range(part.start, end)
        part.first_draft_row = len(tokens)
        part.logits_row = part.first_draft_row - 1 if needs.all_logits else at
        at += part.decides
        if part.draft is not None:
            tokens += part.draft.ids
            positions += _behind(end, part.draft)
            at += len(part.draft.ids)
    if device == "cpu":
        return Batch(_tensor(tokens), _tensor(positions), tuple(step.parts), embeds)
    both = _tensor([tokens, positions]).to(device, non_blocking=True)
    return Batch(both[0], both[1], tuple(step.parts), embeds)


def hide_numbers(seq: Sequence, tokens: list[int]) -> list[int]:
    """Tokens with -1 in place of the numbers of embeddings."""
    return [max(token, -1) for token in tokens] if seq.embeds else tokens


def _embedded_rows(part: Part) -> dict[int, Tensor]:
    """Batch rows of pending positions that are given as embeddings."""
    given = part.seq.embeds.items()
    return {part.row + at - part.start: row for at, row in given if part.start <= at < part.end}


def _behind(end: int, draft: Draft) -> Iterable[int]:
    """Positions of draft tokens after committed text up to ``end``."""
    if draft.parents is None:
        return range(end, end + len(draft.ids))
    return (end - 1 + depth for depth in draft.depths)


def _tensor(numbers: list) -> Tensor:
    """A tensor from a list, in half the time of torch.tensor."""
    return torch.from_numpy(np.array(numbers, dtype=INT64))
