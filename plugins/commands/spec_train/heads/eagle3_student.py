"""The loss of an eagle3 head, and how many of its drafts would be accepted."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.data.samples import Sample, TopK
from spec_train.heads.eagle3 import Eagle3, PairRange
from spec_train.heads.student import count_leading
from spec_train.heads.vocabulary import Vocabulary

STEP_WEIGHT = 0.8
"""Weight in the loss of each unrolled step, relative to the step before it."""
UNROLL_ONE_IN = 2
"""Texts for each one that is unrolled. The others train the first step only, which decides most of the acceptance."""


@attrs.define(eq=False)
class Eagle3Student:
    """Unrolled ``draft_max`` steps on its own outputs, as it drafts."""

    head: Eagle3
    vocab: Vocabulary
    draft_max: int = 4

    @property
    def min_tokens(self) -> int:
        return self.draft_max + 2

    def loss(self, samples: Sequence[Sample], rng: np.random.Generator) -> Tensor:
        unrolled = -(-len(samples) // UNROLL_ONE_IN)
        steps = self.step_losses(samples[:unrolled], self.draft_max)
        firsts = [steps[0], *(self.step_losses(samples[unrolled:], 1) if samples[unrolled:] else [])]
        first = torch.stack([loss for loss, _ in firsts]).sum() / sum(rows for _, rows in firsts)
        means = torch.stack([first, *(loss / rows for loss, rows in steps[1:])])
        weights = STEP_WEIGHT ** torch.arange(self.draft_max, device=means.device)
        return (means * weights).sum() / weights.sum()

    def step_losses(self, samples: Sequence[Sample], depth: int) -> list[tuple[Tensor, int]]:
        """Loss of each unrolled step, added up over all trained rows, and the number of rows."""
        ranges = pair_ranges(samples, depth)
        embedded = self.vocab.embed(torch.cat([x.tokens[1:] for x in samples]))
        fused = self.head.fuse(torch.cat([x.features[:-1] for x in samples]))
        losses = []
        for j, y in enumerate(self.head.unroll(embedded, fused, depth, ranges)):
            top_k = TopK.concat(
                [x.top_k[j + 1 + t.skip : j + 1 + t.rows] for x, t in zip(samples, ranges, strict=True)]
            )
            losses.append((self.vocab.loss(self.head.hidden_rows(y), top_k, y.new_ones(len(y))), len(y)))
        return losses

    @torch.no_grad()
    def accepted_counts(self, sample: Sample) -> list[int]:
        embedded, fused = self.vocab.embed(sample.tokens[1:]), self.head.fuse(sample.features[:-1])
        pad = embedded.new_zeros(self.draft_max - 1, embedded.shape[1])
        pairs = PairRange(0, len(embedded), min(max(0, sample.start - 1), len(embedded) - 1))
        outputs = self.head.unroll(torch.cat([embedded, pad]), torch.cat([fused, pad]), self.draft_max, [pairs])
        tokens = F.pad(sample.tokens, (0, self.draft_max), value=-1)
        hits = [
            self.vocab.greedy(self.head.hidden_rows(y)) == tokens[pairs.skip + j + 2 :][: len(y)]
            for j, y in enumerate(outputs)
        ]
        return [0] * (1 + pairs.skip) + count_leading(torch.stack(hits, 1))


def pair_ranges(samples: Sequence[Sample], depth: int) -> list[PairRange]:
    """The pairs of each sample. Pairs of its prompt are attended to, but not trained."""
    ranges, first = [], 0
    for sample in samples:
        pairs = len(sample.tokens) - 1
        rows = pairs - depth + 1
        ranges.append(PairRange(first, rows, min(max(0, sample.start - 2), rows - 1)))
        first += pairs
    return ranges
