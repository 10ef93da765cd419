"""A dflash head begins as one that copies, which training does not discover in minutes.

Row i of a block knows its place and the block's first token, nothing else. So in its first layer attention head d
fetches that token for row d + 1, by distance. In the second, head d looks for the position whose token d places before
was this one, and fetches what the target expected there: row d + 1 drafts what followed last time (the induction head
of Olsson et al., 2209.11895, a step further ahead for every attention head).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.induction import ridge
from spec_train.lessons import Lesson
from spec_train.pupils import DFlashPupil

CODE = 32
"""Dimensions that tell one token from another."""
FAST, SLOW = 1e-1, 2e-3
"""Radians per position that tell one place from the next, and that tell the same token after hundreds of places."""
NEAR, SHARP, LOUD = 2.5, 1.5, 3.0
"""Weights of the norms of queries and keys in the two layers, and how much louder the copy is than the rest."""


@attrs.frozen(eq=False)
class Seen:
    """Of some texts: f [N, inputs x width] hidden states, their last part h [N, D], and x [N] tokens by how many places
    they lie before."""

    f: Tensor
    h: Tensor
    x: list[Tensor]

    @classmethod
    def of(cls, lessons: Sequence[Lesson], width: int, back: int) -> Seen:
        lessons = [x for x in lessons if len(x.tokens) > back]
        f = torch.cat([x.features[back:].float() for x in lessons])
        x = [torch.cat([x.tokens[back - j : len(x.tokens) - j] for x in lessons]) for j in range(back)]
        return cls(f, f[:, -width:], x)


@torch.no_grad()
def start(pupil: DFlashPupil, lessons: Sequence[Lesson]) -> None:
    """Set ``fc`` and the attention of two layers. lessons: some texts, to learn what tells a token."""
    head, s = pupil.head, pupil.head.shape
    slow = torch.nonzero(head.theta < SLOW).flatten()[-CODE // 2 :]
    wide = s.width == s.target_width and s.width >= s.head + CODE * s.heads
    if s.layers < 2 or s.kv_heads != s.heads or len(slow) < CODE // 2 or s.head < CODE or not wide:
        return
    seen = Seen.of(lessons, s.width, s.heads)
    mask = F.rms_norm(pupil.lent.embedding[s.mask], (s.width,), eps=s.eps)
    words = F.rms_norm(pupil.lent.embedding, (s.width,), eps=s.eps)
    code = telling(words[seen.x[0]], mask)
    basis, spread = widest(seen.h)
    for layer, weight in ((0, NEAR), (1, SHARP)):
        for x in "qk":
            head[f"blk.{layer}.attn_{x}_norm.weight"].fill_(weight)
    _features(pupil, seen, basis / spread[:, None], words @ code.T)
    quiet = basis[-CODE * s.heads :]  # directions that matter least to what is drafted
    _fetch(pupil, mask, words[seen.x[0]], code, quiet)
    _match(pupil, mask, quiet, torch.cat([slow, slow + s.head // 2]), basis, spread)


def widest(x: Tensor) -> tuple[Tensor, Tensor]:
    """Directions [D, D] in which rows are long, the longest first, and how long [D]"""
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    return vectors.flip(1).T, values.flip(0).clamp_min(1e-6).sqrt()


def without(x: Tensor, direction: Tensor) -> Tensor:
    unit = F.normalize(direction, dim=0)
    return x - (x @ unit)[..., None] * unit


def telling(words: Tensor, mask: Tensor) -> Tensor:
    """[CODE, D] whose products with words have variance 1, and are 0 with the mask and with the mean"""
    middle = without(words.mean(0), mask)
    basis, spread = widest(without(without(words, mask), middle))
    return without(without(basis[:CODE], mask), middle) / spread[:CODE, None]


def _features(pupil: DFlashPupil, seen: Seen, white: Tensor, codes: Tensor) -> None:
    """What a position is known by: its last hidden state, and the codes of its tokens by how far they lie back."""
    fc, s = pupil.head["fc.weight"], pupil.head.shape
    fc.zero_()
    told = [ridge(seen.f, codes[x]) for x in seen.x]
    own = s.width - CODE * s.heads
    fc[:own, -s.width :] = white[:own]
    fc[own:] = torch.cat(told)


def _fetch(pupil: DFlashPupil, mask: Tensor, words: Tensor, code: Tensor, quiet: Tensor) -> None:
    """Head d of the first layer: rows of unknown tokens look d + 1 places back, at rows of the block only."""
    head, s = pupil.head, pupil.head.shape
    q, k, v, out = (head[f"blk.0.attn_{x}.weight"] for x in ("q", "k", "v", "output"))
    fast = torch.nonzero(head.theta > FAST).flatten()
    rows = torch.cat([words, mask.expand(len(words) // 4, -1)])
    inside = ridge(rows, torch.ones(len(rows), 1))[0]
    for matrix in (q, k, v, out):
        matrix.zero_()
    for d in range(s.heads):
        at, turn = d * s.head, (d + 1) * head.theta[fast]
        q[at + fast] = F.normalize(mask, dim=0)
        k[at + fast], k[at + fast + s.head // 2] = turn.cos()[:, None] * inside, turn.sin()[:, None] * inside
        v[at : at + CODE] = code
        out[:, at : at + CODE] = quiet[d * CODE : (d + 1) * CODE].T


def _match(pupil: DFlashPupil, mask: Tensor, quiet: Tensor, dims: Tensor, basis: Tensor, spread: Tensor) -> None:
    """Head d of the second layer: the token that was fetched against that which lies d places before a position."""
    head, s = pupil.head, pupil.head.shape
    q, k, v, out = (head[f"blk.1.attn_{x}.weight"] for x in ("q", "k", "v", "output"))
    own, eye = s.width - CODE * s.heads, torch.eye(s.width)
    back = basis.T * spread / head["output_norm.weight"][:, None]
    for matrix in (q, k, v, out):
        matrix.zero_()
    for d in range(s.heads):
        at = d * s.head
        q[at + dims] = without(quiet[d * CODE : (d + 1) * CODE], mask)
        k[at + dims] = eye[own + d * CODE : own + (d + 1) * CODE]
        v[at : at + s.head] = eye[: s.head]
        out[:, at : at + s.head] = LOUD * back[:, : s.head]
