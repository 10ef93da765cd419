"""Initialises two layers of a dflash head to copy, which training does not discover in minutes.

Row i of a block knows its own position and the block's first token, nothing else. So in the first layer attention head
d fetches that token for row d + 1, by distance. In the second, head d attends to positions whose token d positions
earlier was this one, and fetches the target's state there: row d + 1 drafts what followed last time (the induction head
of Olsson et al., 2209.11895, one token further ahead for every attention head).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.data.samples import Sample
from spec_train.heads.dflash_student import DFlashStudent
from spec_train.init.regression import FAST, SLOW, principal_directions, ridge

CODE = 32
"""Dimensions of the code of a token."""
FETCH_NORM = 2.5
"""Weight of the query and key norms in the first layer."""
MATCH_NORM = 1.5
"""Weight of the query and key norms in the second layer."""
STRENGTH = 3.0
"""Scale of the copy relative to the rest."""


@attrs.frozen(eq=False)
class Positions:
    """Positions of some texts: features [N, inputs x width]; last [N, D], their last part; tokens: [N] ids of the token
    j positions earlier, for each j."""

    features: Tensor
    last: Tensor
    tokens: list[Tensor]

    @classmethod
    def of(cls, samples: Sequence[Sample], width: int, back: int) -> Positions:
        samples = [x for x in samples if len(x.tokens) > back]
        features = torch.cat([x.features[back:].float() for x in samples])
        tokens = [torch.cat([x.tokens[back - j : len(x.tokens) - j] for x in samples]) for j in range(back)]
        return cls(features, features[:, -width:], tokens)


@torch.no_grad()
def add_copy_layers(student: DFlashStudent, samples: Sequence[Sample]) -> None:
    """Set ``fc`` and the attention of two layers. samples: to fit the map from hidden states to tokens. Does nothing if
    the sizes of the head do not allow it."""
    head, s = student.head, student.head.shape
    slow = torch.nonzero(head.theta < SLOW).flatten()[-CODE // 2 :]
    wide = s.width == s.target_width and s.width >= s.head + CODE * s.heads
    if s.layers < 2 or s.kv_heads != s.heads or len(slow) < CODE // 2 or s.head < CODE or not wide:
        return
    positions = Positions.of(samples, s.width, s.heads)
    mask = F.rms_norm(student.vocab.embedding[s.mask], (s.width,), eps=s.eps)
    words = F.rms_norm(student.vocab.embedding, (s.width,), eps=s.eps)
    code = token_code(words[positions.tokens[0]], mask)
    basis, spread = principal_directions(positions.last)
    for layer, weight in ((0, FETCH_NORM), (1, MATCH_NORM)):
        for x in "qk":
            head[f"blk.{layer}.attn_{x}_norm.weight"].fill_(weight)
    _set_features(student, positions, basis / spread[:, None], words @ code.T)
    unused = basis[-CODE * s.heads :]  # the directions of the state with the least variance
    _set_fetch(student, mask, words[positions.tokens[0]], code, unused)
    _set_match(student, mask, unused, torch.cat([slow, slow + s.head // 2]), basis, spread)


def without_direction(x: Tensor, direction: Tensor) -> Tensor:
    """x without its component along a direction."""
    unit = F.normalize(direction, dim=0)
    return x - (x @ unit)[..., None] * unit


def token_code(words: Tensor, mask: Tensor) -> Tensor:
    """[CODE, D] whose products with words have variance 1, and are 0 with the mask token and with the mean."""
    mean = without_direction(words.mean(0), mask)
    basis, spread = principal_directions(without_direction(without_direction(words, mask), mean))
    return without_direction(without_direction(basis[:CODE], mask), mean) / spread[:CODE, None]


def _set_features(student: DFlashStudent, positions: Positions, white: Tensor, codes: Tensor) -> None:
    """``fc``: the last hidden state of a position, and the codes of its token and of those before it."""
    fc, s = student.head["fc.weight"], student.head.shape
    fc.zero_()
    maps = [ridge(positions.features, codes[x]) for x in positions.tokens]
    own = s.width - CODE * s.heads
    fc[:own, -s.width :] = white[:own]
    fc[own:] = torch.cat(maps)


def _set_fetch(student: DFlashStudent, mask: Tensor, words: Tensor, code: Tensor, unused: Tensor) -> None:
    """Set head d of the first layer: mask rows attend d + 1 positions back, to rows of the block only."""
    head, s = student.head, student.head.shape
    q, k, v, out = (head[f"blk.0.attn_{x}.weight"] for x in ("q", "k", "v", "output"))
    fast = torch.nonzero(head.theta > FAST).flatten()
    rows = torch.cat([words, mask.expand(len(words) // 4, -1)])
    in_block = ridge(rows, torch.ones(len(rows), 1))[0]
    for matrix in (q, k, v, out):
        matrix.zero_()
    for d in range(s.heads):
        at, angle = d * s.head, (d + 1) * head.theta[fast]
        q[at + fast] = F.normalize(mask, dim=0)
        k[at + fast], k[at + fast + s.head // 2] = angle.cos()[:, None] * in_block, angle.sin()[:, None] * in_block
        v[at : at + CODE] = code
        out[:, at : at + CODE] = unused[d * CODE : (d + 1) * CODE].T


def _set_match(
    student: DFlashStudent, mask: Tensor, unused: Tensor, dims: Tensor, basis: Tensor, spread: Tensor
) -> None:
    """Set head d of the second layer: it matches the fetched token with the token d positions before a position."""
    head, s = student.head, student.head.shape
    q, k, v, out = (head[f"blk.1.attn_{x}.weight"] for x in ("q", "k", "v", "output"))
    own, eye = s.width - CODE * s.heads, torch.eye(s.width)
    back = basis.T * spread / head["output_norm.weight"][:, None]
    for matrix in (q, k, v, out):
        matrix.zero_()
    for d in range(s.heads):
        at = d * s.head
        q[at + dims] = without_direction(unused[d * CODE : (d + 1) * CODE], mask)
        k[at + dims] = eye[own + d * CODE : own + (d + 1) * CODE]
        v[at : at + s.head] = eye[: s.head]
        out[:, at : at + s.head] = STRENGTH * back[:, : s.head]
