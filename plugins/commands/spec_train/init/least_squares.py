"""Initialises an eagle3 head as the linear map that best predicts the target's next state, by least squares.

``fc`` maps the features of a position to the state that the target's output matrix reads there, before the weights of
the final norm. The residual stream starts with it, so attention has to add the difference to the next position's state.
The part of that difference that is linear in the newest token's embedding and the feature is computed by attention
heads that attend to their own position only. The output of a step is then what the next step reads as its feature.

Shapes: N pairs, D width, E inputs x target width, d width of an attention head, n key heads less one.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.data.samples import Sample
from spec_train.heads.eagle3 import PREFIX
from spec_train.heads.eagle3_student import Eagle3Student
from spec_train.init.regression import FAST, SLOW, scaled_ridge

TUNING_SAMPLES = 12
"""Number of samples on which a scale is tuned."""
OWN_POSITION_SCORE = 40.0
"""Attention score of a head's own position."""
NORM_SCALES = tuple(0.85**i for i in range(12))
"""Factors of the final norm that are tried: uncertain predictions need flatter distributions."""


@attrs.frozen(eq=False)
class Pairs:
    """features [N, E] of positions; embedded [N, D], the token after each; tokens [N], the token at each; state and
    next_state [N, D]: the target's states at a position and at the next one, before the weights of the final norm."""

    features: Tensor
    embedded: Tensor
    tokens: Tensor
    state: Tensor
    next_state: Tensor

    @classmethod
    def of(cls, student: Eagle3Student, samples: Sequence[Sample], finals: Sequence[Tensor]) -> Pairs:
        """finals: [T, D] of each sample, the input of the output matrix."""
        weight = student.head["output_norm.weight"]
        weight = torch.where(weight.abs() > 1e-2 * weight.abs().mean(), weight, torch.inf)  # dimensions the norm drops
        return cls(
            torch.cat([x.features[:-1] for x in samples]).float(),
            student.vocab.embed(torch.cat([x.tokens[1:] for x in samples])),
            torch.cat([x.tokens[:-1] for x in samples]),
            torch.cat([f[:-1] for f in finals]).float() / weight,
            torch.cat([f[1:] for f in finals]).float() / weight,
        )


@torch.no_grad()
def fit_student(student: Eagle3Student, samples: Sequence[Sample], finals: Sequence[Tensor]) -> None:
    """Set ``fc``, and all attention heads that do not share the first key head. Does nothing if the sizes of the head
    do not allow it."""
    head, s = student.head, student.head.shape
    fast = torch.nonzero(head.theta > FAST).flatten()
    if s.width != s.target_width or s.kv_heads < 2 or not len(fast) or not s.norm_before_residual:
        return
    pairs = Pairs.of(student, samples, finals)
    _fit_fc(student, pairs)
    c = head.norm(f"{PREFIX}attn_norm_2", head.fuse(pairs.features))
    inputs = torch.cat([head.norm(f"{PREFIX}attn_norm", pairs.embedded), c], -1)
    _fit_attention(student, inputs, pairs.next_state - c, fast)


def _fit_fc(student: Eagle3Student, pairs: Pairs) -> None:
    """The state at a position; in the directions with the least variance, a code of its token."""
    head = student.head
    codes = 2 * int((head.theta < SLOW).sum())
    _, directions = torch.linalg.eigh(pairs.state.T @ pairs.state)
    unused = directions[:, :codes]  # [D, codes]
    words = F.normalize(student.vocab.embed(pairs.tokens), dim=-1)
    _, components = torch.linalg.eigh(torch.cov(words.T))
    code = words @ components[:, -codes:] if codes else words[:, :0]
    code = code / code.square().mean(0).sqrt().clamp_min(1e-6)
    state = scaled_ridge(pairs.features, pairs.state)
    head["fc.weight"].copy_(state - unused @ (unused.T @ state) + unused @ scaled_ridge(pairs.features, code))


def _fit_attention(student: Eagle3Student, inputs: Tensor, residual: Tensor, fast: Tensor) -> None:
    """Fit attention. inputs: [N, 2 D]. residual: [N, D], the values that attention should add; its first principal
    directions are used, up to the width of the heads."""
    head, s = student.head, student.head.shape
    linear = scaled_ridge(inputs, residual)  # [D, 2 D]
    predicted = inputs @ linear.T
    _, directions = torch.linalg.eigh(predicted.T @ predicted)
    components = directions.flip(1)[:, : s.head * (s.kv_heads - 1)]
    constant = scaled_ridge(inputs, inputs.new_ones(len(inputs), 1))[0]
    constant = constant * (OWN_POSITION_SCORE / len(fast)) ** 0.5 * s.head**0.25
    q, k, v, out = (head[f"{PREFIX}attn_{x}.weight"] for x in ("q", "k", "v", "output"))
    for group in range(1, s.kv_heads):
        own = slice(group * s.head, (group + 1) * s.head)
        first = group * (s.heads // s.kv_heads) * s.head  # of the query heads that share these keys
        part = components[:, (group - 1) * s.head : own.start]
        q[first : first + s.head], k[own], v[own] = 0.0, 0.0, 0.0
        q[first + fast], k[own.start + fast] = constant, constant
        v[own.start : own.start + part.shape[1]] = part.T @ linear
        out[:, first : first + s.head] = 0.0
        out[:, first : first + part.shape[1]] = part


@torch.no_grad()
def calibrate_norm(student: Eagle3Student, samples: Sequence[Sample]) -> None:
    """Scale the final norm by the factor with the smallest loss on some samples. It changes no greedy draft."""
    weight = student.head["output_norm.weight"]
    unscaled, losses = weight.clone(), []
    for factor in NORM_SCALES:
        weight.copy_(unscaled * factor)
        losses.append(float(student.loss(samples[:TUNING_SAMPLES], np.random.default_rng(0))))
    weight.copy_(unscaled * NORM_SCALES[int(np.argmin(losses))])
