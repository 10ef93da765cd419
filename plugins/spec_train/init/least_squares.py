"""An eagle3 head begins as the linear map that tells most of the target's next state: least squares, no training.

The feature of a position becomes the state that the target's output matrix reads there, before the weights of the final
norm. The stream begins with it, so what attention has to add is the difference to the next position's. Of that the part
that is linear in the newest token's embedding and the feature goes through attention heads that look at their own
position only. Its own output then is what the next step reads as a feature.

Shapes: N pairs, D width, E inputs x target width, d width of an attention head, n key heads less one.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.eagle3 import PREFIX
from spec_train.induction import SLOW, TRIED
from spec_train.lessons import Lesson
from spec_train.pupils import Eagle3Pupil

FAST, NEAR = 1e-1, 40.0
"""Radians per position that tell one place from the next, and the score of a head's own place, before it is scaled."""
RIDGE = 3e-3
SURE = tuple(0.85**i for i in range(12))
"""Factors of the final norm that are tried: what is only half known must not be said aloud."""


@attrs.frozen(eq=False)
class Seen:
    """features [N, E] of positions, embedded [N, D] the token after each, now and then [N, D]: the target's states at a
    position and at the next one, before the weights of the final norm."""

    features: Tensor
    embedded: Tensor
    tokens: Tensor
    now: Tensor
    then: Tensor

    @classmethod
    def of(cls, pupil: Eagle3Pupil, lessons: Sequence[Lesson], finals: Sequence[Tensor]) -> Seen:
        """finals: [T, D] of each lesson, what the output matrix reads."""
        weight = pupil.head["output_norm.weight"]
        weight = torch.where(weight.abs() > 1e-2 * weight.abs().mean(), weight, torch.inf)  # what is not heard
        return cls(
            torch.cat([x.features[:-1] for x in lessons]).float(),
            pupil.lent.embed(torch.cat([x.tokens[1:] for x in lessons])),
            torch.cat([x.tokens[:-1] for x in lessons]),
            torch.cat([f[:-1] for f in finals]).float() / weight,
            torch.cat([f[1:] for f in finals]).float() / weight,
        )


@torch.no_grad()
def start(pupil: Eagle3Pupil, lessons: Sequence[Lesson], finals: Sequence[Tensor]) -> None:
    """Set ``fc`` and all attention heads with keys of their own but the first."""
    head, s = pupil.head, pupil.head.shape
    fast = torch.nonzero(head.theta > FAST).flatten()
    if s.width != s.target_width or s.kv_heads < 2 or not len(fast) or not s.norm_before_residual:
        return
    seen = Seen.of(pupil, lessons, finals)
    _feature(pupil, seen)
    c = head.norm(f"{PREFIX}attn_norm_2", head.fused(seen.features))
    given = torch.cat([head.norm(f"{PREFIX}attn_norm", seen.embedded), c], -1)
    _step(pupil, given, seen.then - c, fast)


def least_squares(given: Tensor, wanted: Tensor) -> Tensor:
    """[K, E] that best makes wanted rows [N, K] of given ones [N, E], whatever the scale of their columns."""
    spread = given.square().mean(0).sqrt().clamp_min(1e-6)
    scaled = given / spread
    gram = scaled.T @ scaled
    damping = RIDGE * len(given) * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(gram + damping, scaled.T @ wanted).T / spread


def _feature(pupil: Eagle3Pupil, seen: Seen) -> None:
    """The state at a position; in directions where states hardly differ, which token it belongs to."""
    head = pupil.head
    codes = 2 * int((head.theta < SLOW).sum())
    _, directions = torch.linalg.eigh(seen.now.T @ seen.now)
    quiet = directions[:, :codes]  # [D, codes]
    words = F.normalize(pupil.lent.embed(seen.tokens), dim=-1)
    _, widest = torch.linalg.eigh(torch.cov(words.T))
    code = words @ widest[:, -codes:] if codes else words[:, :0]
    code = code / code.square().mean(0).sqrt().clamp_min(1e-6)
    state = least_squares(seen.features, seen.now)
    head["fc.weight"].copy_(state - quiet @ (quiet.T @ state) + quiet @ least_squares(seen.features, code))


def _step(pupil: Eagle3Pupil, given: Tensor, wanted: Tensor, fast: Tensor) -> None:
    """given: [N, 2 D] what attention reads; wanted: [N, D] what is missing, of which the widest directions are told."""
    head, s = pupil.head, pupil.head.shape
    told = least_squares(given, wanted)  # [D, 2 D]
    made = given @ told.T
    _, directions = torch.linalg.eigh(made.T @ made)
    widest = directions.flip(1)[:, : s.head * (s.kv_heads - 1)]
    always = least_squares(given, given.new_ones(len(given), 1))[0] * (NEAR / len(fast)) ** 0.5 * s.head**0.25
    q, k, v, out = (head[f"{PREFIX}attn_{x}.weight"] for x in ("q", "k", "v", "output"))
    for group in range(1, s.kv_heads):
        own = slice(group * s.head, (group + 1) * s.head)
        first = group * (s.heads // s.kv_heads) * s.head  # of the query heads that share these keys
        part = widest[:, (group - 1) * s.head : own.start]
        q[first : first + s.head], k[own], v[own] = 0.0, 0.0, 0.0
        q[first + fast], k[own.start + fast] = always, always
        v[own.start : own.start + part.shape[1]] = part.T @ told
        out[:, first : first + s.head] = 0.0
        out[:, first : first + part.shape[1]] = part


@torch.no_grad()
def sure(pupil: Eagle3Pupil, lessons: Sequence[Lesson]) -> None:
    """Scale the final norm by what has the least loss on some texts; which token is drafted does not change."""
    weight = pupil.head["output_norm.weight"]
    own, losses = weight.clone(), []
    for factor in SURE:
        weight.copy_(own * factor)
        losses.append(float(pupil.loss(lessons[:TRIED], np.random.default_rng(0))))
    weight.copy_(own * SURE[int(np.argmin(losses))])
