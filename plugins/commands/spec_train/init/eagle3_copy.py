"""Initialises the first attention head of an eagle3 head to copy, which training does not discover in minutes.

A pair has the hidden state of a token and the token after it. So one attention step finds what followed earlier
occurrences of the newest token: the query is its embedding, the key is the token that a hidden state belongs to, and
the value is the token after that (the induction head of Olsson et al., 2209.11895, on pairs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.data.samples import Sample
from spec_train.heads.eagle3 import PREFIX, Eagle3
from spec_train.heads.eagle3_student import Eagle3Student
from spec_train.init.regression import SLOW, principal_directions, ridge

SHARPNESS = 8.0
"""Variance of each matched component of queries and keys."""
STRENGTHS = (3.0, 1.5, 0.75, 0.4, 0.2, 0.1, 0.0)
"""Scales of the copy that are tried, relative to the feature it is added to."""
TUNING_SAMPLES = 12
"""Number of samples on which they are tried."""


@torch.no_grad()
def add_copy_head(student: Eagle3Student, samples: Sequence[Sample]) -> None:
    """Set queries, keys, values and output of the first attention head.

    samples: to fit the map from hidden states to tokens, and to tune the strength of the copy.
    """
    head, s = student.head, student.head.shape
    slow = torch.nonzero(head.theta < SLOW).flatten()
    if not len(slow) or s.width < s.head:
        return
    tokens, features = _tokens_and_features(student, samples)
    words = F.rms_norm(student.vocab.embedding, (s.width,), eps=s.eps)
    basis, spread = principal_directions(words[tokens] - words[tokens].mean(0))
    dims = torch.cat([slow, slow + s.head // 2])
    code = (basis[: len(dims)] / spread[: len(dims), None]) * SHARPNESS**0.5  # [n, D], of variance SHARPNESS each
    known = F.rms_norm(features, (s.width,), eps=s.eps)
    to_word = ridge(known, words[tokens])
    scale = 1.0 if s.norm_before_residual else features.square().mean().sqrt()
    _set_weights(head, dims, code, code @ to_word, basis[: s.head])
    out = head[f"{PREFIX}attn_output.weight"][:, : s.head]
    _tune(student, samples[:TUNING_SAMPLES], lambda strength: out.copy_(strength * scale * basis[: s.head].T))


def _tune(student: Eagle3Student, samples: Sequence[Sample], set_strength: Callable[[float], object]) -> None:
    """Keep the strength with which most drafts are accepted."""
    accepted = []
    for strength in STRENGTHS:
        set_strength(strength)
        accepted.append(sum(sum(student.accepted_counts(sample)) for sample in samples))
    set_strength(STRENGTHS[int(np.argmax(accepted))])


def _tokens_and_features(student: Eagle3Student, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    """[N] tokens and [N, D] their fused hidden states."""
    return torch.cat([x.tokens for x in samples]), torch.cat([student.head.fuse(x.features) for x in samples])


def _set_weights(eagle3: Eagle3, dims: Tensor, query: Tensor, key: Tensor, basis: Tensor) -> None:
    """query: [n, D] of an embedding; key: [n, D] of a feature; basis: [d, D] of the value."""
    s = eagle3.shape
    q, k, v = (eagle3[f"{PREFIX}attn_{x}.weight"] for x in "qkv")
    for matrix in (q, k, v):
        matrix[: s.head] = 0.0
    q[dims, : s.width] = query
    k[dims, s.width :] = key
    v[: s.head, : s.width] = basis
