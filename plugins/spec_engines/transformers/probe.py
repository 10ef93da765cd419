"""Whether a model attends as a mask of the caller says: measured when it is loaded, on a few tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_core import Draft, Needs, Part, Target
from spec_core.toolkit import forward, open_sequence

TOKENS, SIBLINGS = [3, 1, 4, 1], [5, 2]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Share of the largest logit by which the second sibling may differ from a chain; 0.1 in lower precision."""


def takes_masks(target: Target) -> bool:
    """Whether the second of two drafts after one token has the logits that it has as the only one."""
    vocab = target.info.vocab
    tokens, (first, second) = [t % vocab for t in TOKENS], [t % vocab for t in SIBLINGS]
    try:
        tree = _last_row(target, tokens, Draft([first, second], parents=[-1, -1]))
    except Exception:  # a model that does not take such a mask may raise anything
        return False
    chain = _last_row(target, tokens, Draft([second]))
    off = (tree - chain).abs().max() / chain.abs().max().clamp_min(1e-6)
    return bool(off <= TOLERANCE.get(chain.dtype, 0.1))


def _last_row(target: Target, tokens: list[int], draft: Draft) -> Tensor:
    seq = open_sequence(target)
    try:
        step = forward(target, [Part(seq, 0, tokens, decides=True, draft=draft)], Needs(trees=True))
        return step.output.logits[-1].clone()
    finally:
        target.close(seq)
