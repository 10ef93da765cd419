"""DSpark for training: a DFlash head, whose rows are corrected by the token before each, and their confidence.

Shapes: R rows, D width, r rank of the Markov matrices.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.heads.dflash import DFlash

MARKOV = ("markov_w1.weight", "markov_w2.weight")
CONFIDENCE = ("conf_proj.weight", "conf_proj.bias")


class DSpark(DFlash):
    """Differentiable. The layers of the block are a trained head's, and stay as they are."""

    TABLES: ClassVar[frozenset[str]] = frozenset({*MARKOV, CONFIDENCE[0]})
    TABLE_LR_SHARE: ClassVar[float] = 1.0

    def freeze_block(self) -> None:
        """Train only the Markov matrices and the confidence head."""
        for name in self.tensors_by_name():
            self[name].requires_grad_(name in (*MARKOV, *CONFIDENCE))

    def join_rows(self, states: Tensor, before: Tensor) -> Tensor:
        """[R, D + r], the states [R, D] of the block and the first factors of the tokens [R] before their own.

        Against an output matrix with the second factors appended they give the corrected logits.
        """
        return torch.cat([states, F.embedding(before, self[MARKOV[0]])], -1)

    def confidence(self, rows: Tensor) -> Tensor:
        """[R] logits of the chance that the tokens chosen from joined rows are accepted. The Markov matrices are not
        trained by it."""
        return F.linear(rows.detach(), self[CONFIDENCE[0]], self[CONFIDENCE[1]])[:, 0]
