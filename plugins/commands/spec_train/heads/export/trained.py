"""A trained head, as the writers take it."""

from __future__ import annotations

import attrs
from torch import Tensor

from spec_train.heads.shape import Shape


@attrs.frozen(eq=False)
class Trained:
    """weights: float32 by the names of GGUF, the rows of q and k ordered for rotary pairs (i, i + d / 2).

    d2t: [Vd] int64, the target's id of every row of logits; None: row i is token i.
    """

    shape: Shape
    weights: dict[str, Tensor]
    d2t: Tensor | None
    name: str
