"""What training needs of any head that fills blocks: blocks at random positions, and what their rows should predict.

Shapes: A anchors, B tokens of a block, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

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

Head = TypeVar("Head", bound=DFlash)


@attrs.define(eq=False)
class BlockStudent(Generic[Head]):
    """Blocks of mask tokens at random positions."""

    head: Head
    vocab: Vocabulary

    @property
    def draft_max(self) -> int:
        return self.head.shape.block - 1

    @property
    def min_tokens(self) -> int:
        return 3

    def _anchors(self, sample: Sample, rng: np.random.Generator) -> Tensor:
        """Random positions of last known tokens, ascending."""
        last = len(sample.tokens) - 1
        positions = np.arange(min(max(1, sample.start - 1), last - 1), last)
        chosen = rng.choice(positions, max(1, len(positions) // ANCHOR_ONE_IN), replace=False)
        return torch.from_numpy(np.sort(chosen)).to(sample.tokens.device)

    def row_targets(self, samples: Sequence[Sample], anchors: Sequence[Tensor]) -> tuple[TopK, Tensor]:
        """The target's distribution for every row of the blocks, and the weights of the rows, of sum 1."""
        parts, weights = [], []
        for sample, chosen in zip(samples, anchors, strict=True):
            ahead = torch.arange(1, self.draft_max + 1, device=chosen.device)
            decay = torch.exp(-(ahead - 1) * 2 / self.head.shape.block)
            at = chosen[:, None] + ahead  # [A, B - 1], the position that each row predicts
            parts.append(sample.top_k[(at - 1).clamp_max(len(sample.tokens) - 1).flatten()])
            weights.append((decay * (at < len(sample.tokens))).flatten())
        weight = torch.cat(weights)
        return TopK.concat(parts), weight / weight.sum()

    def block_tokens(self, sample: Sample, anchors: Tensor) -> Tensor:
        """[A, B] tokens of the text at the positions of the blocks, -1 after its end."""
        tokens = F.pad(sample.tokens, (0, self.draft_max), value=-1)
        return tokens[anchors[:, None] + torch.arange(self.draft_max + 1, device=anchors.device)]

    @torch.no_grad()
    def accepted_counts(self, sample: Sample) -> list[int]:
        first = max(1, sample.start)
        anchors = torch.arange(first, len(sample.tokens), device=sample.tokens.device)
        hits = [self.hits(self.states([sample], [part]), self.block_tokens(sample, part)) for part in anchors.split(64)]
        return [0] * first + (count_leading(torch.cat(hits)) if hits else [])

    def hits(self, states: Tensor, tokens: Tensor) -> Tensor:
        """[A, B - 1] bool: whether the most likely token of each row is the text's, after the text before it.

        states: [A, B - 1, D]. tokens: [A, B] of the text.
        """
        return self.vocab.greedy(states.flatten(0, 1)).view(len(tokens), -1) == tokens[:, 1:]

    def states(self, samples: Sequence[Sample], anchors: Sequence[Tensor]) -> Tensor:
        """[A, B - 1, D] of the predicting rows of the blocks at ``anchors`` ([A] positions of each sample)."""
        known = torch.cat([x.tokens[at] for x, at in zip(samples, anchors, strict=True)])
        tokens = known.new_full((len(known), self.head.shape.block), self.head.shape.mask)
        tokens[:, 0] = known
        fused = self.head.fuse(torch.cat([x.features for x in samples]))
        sizes = [(len(x.tokens), len(at)) for x, at in zip(samples, anchors, strict=True)]
        return self.head.blocks(self.vocab.embed(tokens), fused, torch.cat([*anchors]), sizes)[:, 1:]
