"""The loss of a dflash head, and how many of its drafts would be accepted."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.data.samples import Sample, TopK
from spec_train.heads.dflash import DFlash
from spec_train.heads.student import count_leading
from spec_train.heads.vocabulary import Vocabulary

ANCHOR_ONE_IN = 4
"""Positions for each block that a step trains."""


@attrs.define(eq=False)
class DFlashStudent:
    """Blocks of mask tokens at random positions."""

    head: DFlash
    vocab: Vocabulary

    @property
    def draft_max(self) -> int:
        return self.head.shape.block - 1

    @property
    def min_tokens(self) -> int:
        return 3

    def loss(self, samples: Sequence[Sample], rng: np.random.Generator) -> Tensor:
        anchors = [self._anchors(x, rng) for x in samples]
        hidden = self.states(samples, anchors).flatten(0, 1)
        ahead = torch.arange(1, self.draft_max + 1, device=hidden.device)
        decay = torch.exp(-(ahead - 1) * 2 / self.head.shape.block)
        parts, weights = [], []
        for sample, chosen in zip(samples, anchors, strict=True):
            at = chosen[:, None] + ahead  # [A, B - 1], the position that each row predicts
            parts.append(sample.top_k[(at - 1).clamp_max(len(sample.tokens) - 1).flatten()])
            weights.append((decay * (at < len(sample.tokens))).flatten())
        weight = torch.cat(weights)
        return self.vocab.loss(hidden, TopK.concat(parts), weight / weight.sum())

    def _anchors(self, sample: Sample, rng: np.random.Generator) -> Tensor:
        """Random positions of last known tokens, ascending."""
        last = len(sample.tokens) - 1
        positions = np.arange(min(max(1, sample.start - 1), last - 1), last)
        chosen = rng.choice(positions, max(1, len(positions) // ANCHOR_ONE_IN), replace=False)
        return torch.from_numpy(np.sort(chosen)).to(sample.tokens.device)

    @torch.no_grad()
    def accepted_counts(self, sample: Sample) -> list[int]:
        first = max(1, sample.start)
        anchors = torch.arange(first, len(sample.tokens), device=sample.tokens.device)
        tokens = F.pad(sample.tokens, (0, self.draft_max), value=-1)
        hits = [self._hits(sample, part, tokens) for part in anchors.split(64)]
        return [0] * first + (count_leading(torch.cat(hits)) if hits else [])

    def _hits(self, sample: Sample, anchors: Tensor, tokens: Tensor) -> Tensor:
        at = anchors[:, None] + torch.arange(1, self.draft_max + 1, device=anchors.device)
        return self.vocab.greedy(self.states([sample], [anchors]).flatten(0, 1)).view(at.shape) == tokens[at]

    def states(self, samples: Sequence[Sample], anchors: Sequence[Tensor]) -> Tensor:
        """[A, B - 1, D] of the predicting rows of the blocks at ``anchors`` ([A] positions of each sample)."""
        known = torch.cat([x.tokens[at] for x, at in zip(samples, anchors, strict=True)])
        tokens = known.new_full((len(known), self.head.shape.block), self.head.shape.mask)
        tokens[:, 0] = known
        fused = self.head.fuse(torch.cat([x.features for x in samples]))
        sizes = [(len(x.tokens), len(at)) for x, at in zip(samples, anchors, strict=True)]
        return self.head.blocks(self.vocab.embed(tokens), fused, torch.cat([*anchors]), sizes)[:, 1:]
