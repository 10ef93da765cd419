"""The first attention head of an eagle3 head begins as one that copies, which training does not discover in minutes.

A pair has the hidden state of a token and the token after it. So what followed earlier occurrences of the newest token
is found in one step: its embedding is the query, which token a hidden state belongs to is the key, and the token after
it is the value (the induction head of Olsson et al., 2209.11895, on pairs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.eagle3 import PREFIX, Eagle3
from spec_train.lessons import Lesson
from spec_train.pupils import Eagle3Pupil

SLOW = 2e-3
"""Radians per position at which a dimension still tells the same token after hundreds of positions."""
SHARP = 8.0
"""Variance of what is matched."""
LOUD = (3.0, 1.5, 0.75, 0.4, 0.2, 0.1, 0.0)
"""How loud the copy may be beside the feature it is added to."""
RIDGE = 1e-2
TRIED = 12
"""Texts on which it is tried."""


@torch.no_grad()
def start(pupil: Eagle3Pupil, lessons: Sequence[Lesson]) -> None:
    """Set the first head's queries, keys, values and way out. lessons: some texts, to learn what tells a token, and to
    try how loud the copy should be."""
    head, s = pupil.head, pupil.head.shape
    slow = torch.nonzero(head.theta < SLOW).flatten()
    if not len(slow) or s.width < s.head:
        return
    tokens, features = _pairs(pupil, lessons)
    words = F.rms_norm(pupil.embed_all(), (s.width,), eps=s.eps)
    basis, spread = _principal(words[tokens])
    dims = torch.cat([slow, slow + s.head // 2])
    tell = (basis[: len(dims)] / spread[: len(dims), None]) * SHARP**0.5  # [n, D], of variance SHARP each
    known = F.rms_norm(features, (s.width,), eps=s.eps)
    told = ridge(known, words[tokens])
    beside = 1.0 if s.norm_before_residual else features.square().mean().sqrt()
    _write(head, dims, tell, tell @ told, basis[: s.head])
    way = head[f"{PREFIX}attn_output.weight"][:, : s.head]
    _loudest(pupil, lessons[:TRIED], lambda loud: way.copy_(loud * beside * basis[: s.head].T))


def _loudest(pupil: Eagle3Pupil, lessons: Sequence[Lesson], put: Callable[[float], object]) -> None:
    """As loud as most drafts of these lessons are accepted."""
    accepted = []
    for loud in LOUD:
        put(loud)
        accepted.append(sum(sum(pupil.accepted(lesson)) for lesson in lessons))
    put(LOUD[int(np.argmax(accepted))])


def _pairs(pupil: Eagle3Pupil, lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor]:
    """[N] tokens and [N, D] what the head makes of their hidden states"""
    return torch.cat([x.tokens for x in lessons]), torch.cat([pupil.head.fused(x.features) for x in lessons])


def _principal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Directions [D, D] in which rows differ, the widest first, and how wide [D]"""
    centred = x - x.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
    return vectors.flip(1).T, values.flip(0).clamp_min(1e-6).sqrt()


def ridge(given: Tensor, wanted: Tensor) -> Tensor:
    """[E, D] that best makes wanted rows [N, E] of given ones [N, D]"""
    gram = given.T @ given
    damping = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(gram + damping, given.T @ wanted).T


def _write(head: Eagle3, dims: Tensor, query: Tensor, key: Tensor, basis: Tensor) -> None:
    """query: [n, D] of an embedding; key: [n, D] of a feature; basis: [d, D] of what is copied."""
    s = head.shape
    q, k, v = (head[f"{PREFIX}attn_{x}.weight"] for x in "qkv")
    for matrix in (q, k, v):
        matrix[: s.head] = 0.0
    q[dims, : s.width] = query
    k[dims, s.width :] = key
    v[: s.head, : s.width] = basis
