"""The loss of the Markov matrices and of the confidence head of a DSpark head.

A row is corrected by the text's token before its own: the token that was drafted, where all before were accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.functional import binary_cross_entropy_with_logits

from spec_train.data.samples import Sample
from spec_train.heads.block_student import BlockStudent
from spec_train.heads.dspark import MARKOV, DSpark
from spec_train.heads.vocabulary import Vocabulary


@attrs.define(eq=False)
class MarkovVocabulary(Vocabulary):
    """Reads joined rows [R, D + r]."""

    @property
    def matrix(self) -> Tensor:
        """[Vd, D + r]: the output matrix, with the second Markov matrix appended."""
        return torch.cat([super().matrix, self.head[MARKOV[1]]], 1)


@attrs.define(eq=False)
class DSparkStudent(BlockStudent[DSpark]):
    """Rows that are corrected from left to right."""

    def loss(self, samples: Sequence[Sample], rng: np.random.Generator) -> Tensor:
        """Cross entropy of the drafts, and of the confidence with what became of each drafted token."""
        anchors = [self._anchors(x, rng) for x in samples]
        tokens = torch.cat([self.block_tokens(x, at) for x, at in zip(samples, anchors, strict=True)])
        with torch.no_grad():
            states = self.states(samples, anchors)
        rows = self._rows(states, tokens)
        drafts = self.vocab.loss(rows, *self.row_targets(samples, anchors))
        with torch.no_grad():
            hits = self.hits(states, tokens)
        tested = first_misses_and_before(hits) & (tokens[:, 1:] >= 0)
        sure = self.head.confidence(rows).view(hits.shape)
        return drafts + binary_cross_entropy_with_logits(sure[tested].float(), hits[tested].float())

    def hits(self, states: Tensor, tokens: Tensor) -> Tensor:
        return self.vocab.greedy(self._rows(states, tokens)).view(len(tokens), -1) == tokens[:, 1:]

    def _rows(self, states: Tensor, tokens: Tensor) -> Tensor:
        """[A (B - 1), D + r]; after the end of a text token 0 stands for the one before, and nothing is trained."""
        return self.head.join_rows(states.flatten(0, 1), tokens[:, :-1].clamp_min(0).flatten())


def first_misses_and_before(hits: Tensor) -> Tensor:
    """[A, B - 1] bool: rows before which every draft was a hit, which a target tests."""
    return F.pad(hits[:, :-1].long().cumprod(1), (1, 0), value=1).bool()
