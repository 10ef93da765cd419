"""The embedding and the output matrix of a head, which it shares with its target or has itself."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.data.samples import TopK
from spec_train.heads.cross_entropy import CrossEntropy
from spec_train.heads.module import HeadModule


@attrs.define(eq=False)
class Vocabulary:
    """embedding: [V, D] of the target. output: [Vd, D] of the target; None: the head has its own. d2t: [Vd] int64, the
    target's id of every row of logits; None: all tokens can be drafted."""

    head: HeadModule
    embedding: Tensor
    output: Tensor | None
    d2t: Tensor | None
    _row: Tensor | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        if self.d2t is not None:
            self._row = self.d2t.new_full((len(self.embedding),), -1)
            self._row[self.d2t] = torch.arange(len(self.d2t), device=self.d2t.device)

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.embedding)

    @property
    def matrix(self) -> Tensor:
        """[Vd, D]"""
        return self.head["output.weight"] if self.output is None else self.output

    def draftable(self, top_k: TopK) -> TopK:
        """Distributions with rows of logits as ids. The probability of a token that cannot be drafted becomes 0; the
        others are not scaled up."""
        if self._row is None:
            return top_k
        rows = self._row[top_k.ids]
        return TopK(rows.clamp_min(0), top_k.p * (rows >= 0))

    def loss(self, hidden: Tensor, top_k: TopK, weight: Tensor) -> Tensor:
        """Cross entropy in nats of the predictions from hidden [R, D] with the distributions of R rows, weighted by
        weight [R] and added up."""
        top_k = self.draftable(top_k)
        return CrossEntropy.apply(hidden, self.matrix, top_k.ids, top_k.p, weight)

    def greedy(self, hidden: Tensor) -> Tensor:
        """[R] the most likely tokens, by the target's ids."""
        best = (hidden @ self.matrix.T).argmax(-1)
        return best if self.d2t is None else self.d2t[best]
