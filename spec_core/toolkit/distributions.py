"""The two distributions that a rule for sampled text compares: the target's, and the one a draft was drawn from."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from spec_core.contract.sequence import Sequence
from spec_core.contract.step import Step
from spec_core.contract.values import Draft
from spec_core.sampling.choose import adjust, finite_choice, host, largest, support


def target_distribution(step: Step, seq: Sequence, row: int, logits: Tensor | None = None) -> np.ndarray:
    """[V] float64: p of a row of ``step.logits(seq)`` under the request's sampling parameters, as in plain decoding.

    Constraint, bias, penalties over text and drafted prefix, temperature, cuts. For requests with a temperature above
    0. Raises TargetError for rows of NaN, or without a finite logit.

    :param logits: [1+K, V] the sequence's logits on the host, as ``rows_on_host`` copies them for a whole step. Without
        them a row on a device is copied alone, which waits for the device once per row.
    """
    history, mask = step.history(seq, row), step.mask(seq, row)
    rows = step.logits(seq) if logits is None else logits
    logits = adjust(host(rows[row]), seq.sampling, history, seq.prompt_len, mask)
    best, values = largest(logits[None])
    token = finite_choice(best, values)
    if math.isinf(values[0]):  # an infinite logit takes all probability
        return point_mass(token, len(logits))
    ids, z = support(logits, seq.sampling)
    p = torch.softmax(z, -1)
    if seq.sampling.truncates:
        p = torch.zeros(len(logits), dtype=p.dtype).scatter_(0, ids, p)
    return p.numpy()


def drafted_from(draft: Draft, j: int, vocab: int) -> np.ndarray:
    """[V] float64: q that draft ``j`` was drawn from; a token that was not drawn has probability 1.

    Rows of ``probs`` have at best float32 precision, so they are normalised. Raises ValueError for the
    proposal ``unknown``, which has no distribution.
    """
    if draft.proposal == "deterministic":
        return point_mass(draft.ids[j], vocab)
    if draft.probs is None:
        raise ValueError(f"a draft of proposal {draft.proposal!r} has no probs: leave it out of Compat(judges=...)")
    row = draft.probs[j].double().cpu().numpy()
    return row / row.sum()


def point_mass(token: int, vocab: int) -> np.ndarray:
    """[V] float64: probability 1 on one token."""
    p = np.zeros(vocab)
    p[token] = 1.0
    return p
