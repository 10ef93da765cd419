"""Probes how a model treats a mask of the caller and a padded batch, when it is loaded, on a few tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spec_core import Draft, Needs, Part, Target
from spec_core.toolkit import forward, open_sequence

if TYPE_CHECKING:
    from spec_engines.transformers.transformers_target import TransformersTarget

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
    return _equal(tree, _last_row(target, tokens, Draft([second])))


def takes_batches(target: TransformersTarget) -> bool:
    """Whether two sequences of different lengths have the logits together that each has alone."""
    texts = [[t % target.info.vocab for t in text] for text in (TOKENS, SIBLINGS)]
    alone = [_last_row(target, text, None) for text in texts]
    target.batches = True
    try:
        together = _last_rows(target, texts, None)
    except Exception:  # as above
        return False
    finally:
        target.batches = False
    return all(map(_equal, together, alone))


def _equal(rows: Tensor, expected: Tensor) -> bool:
    off = (rows - expected).abs().max() / expected.abs().max().clamp_min(1e-6)
    return bool(off <= TOLERANCE.get(expected.dtype, 0.1))


def _last_row(target: Target, tokens: list[int], draft: Draft | None) -> Tensor:
    return _last_rows(target, [tokens], draft)[-1]


def _last_rows(target: Target, texts: list[list[int]], draft: Draft | None) -> Tensor:
    """[B or more, V] logits of the last token of each text, and of the drafts after it."""
    seqs = [open_sequence(target) for _ in texts]
    try:
        parts = [Part(seq, 0, text, decides=True, draft=draft) for seq, text in zip(seqs, texts, strict=True)]
        return forward(target, parts, Needs(trees=True)).output.logits.clone()
    finally:
        for seq in seqs:
            target.close(seq)
