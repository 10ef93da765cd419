"""Whether rows of a draft have the bits of plain decoding: measured when a model is loaded, on a few tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_core import Draft, Part, Target
from spec_core.toolkit import forward, open_sequence

PROMPT = 24
"""Tokens before the draft."""
WIDTHS = (1, 2, 4, 8, 16)
"""Lengths of drafts."""


def inexactness(target: Target) -> str | None:
    """Why rows are not equal, with the largest difference of a logit; None if they are."""
    vocab, room = target.info.vocab, target.info.context - PROMPT - 1
    if room < max(WIDTHS):
        return f"not tested, its context has {target.info.context} positions only"
    text = [(7 * i * i + 31 * i + 5) % vocab for i in range(PROMPT + 1 + max(WIDTHS))]
    alone = _alone(target, text)
    for width in WIDTHS:
        rows = _draft_rows(target, text, width)
        if not torch.equal(rows, alone[: 1 + width]):
            apart = (rows - alone[: 1 + width]).abs().max()
            return f"a row before or in a draft of {width} differs by {apart:.1g} from the same row alone"
    return None


def _alone(target: Target, text: list[int]) -> Tensor:
    """Logits after each token from PROMPT on, one row in each forward."""
    seq = open_sequence(target)
    forward(target, [Part(seq, 0, text[:PROMPT], decides=False)])
    rows = [_deciding_rows(target, Part(seq, at, text[at : at + 1], decides=True)) for at in range(PROMPT, len(text))]
    target.close(seq)
    return torch.cat(rows)


def _draft_rows(target: Target, text: list[int], width: int) -> Tensor:
    seq = open_sequence(target)
    forward(target, [Part(seq, 0, text[:PROMPT], decides=False)])
    draft = Draft(text[PROMPT + 1 : PROMPT + 1 + width])
    rows = _deciding_rows(target, Part(seq, PROMPT, text[PROMPT : PROMPT + 1], decides=True, draft=draft))
    target.close(seq)
    return rows


def _deciding_rows(target: Target, part: Part) -> Tensor:
    return forward(target, [part]).output.logits.clone()
