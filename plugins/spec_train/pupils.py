"""A head that learns: its loss on a lesson, and how far its drafts would be accepted.

Shapes: T positions, R rows, V tokens of the target, Vd of them that can be drafted.
"""

from __future__ import annotations

from typing import Protocol

import attrs
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spec_train.dflash import DFlash
from spec_train.eagle3 import Eagle3
from spec_train.lessons import Lesson
from spec_train.weights import Weights

FADE = 0.8
"""What each further step ahead weighs in the loss of eagle3."""
APART = 8
"""Of dflash: one anchor for so many tokens of a text."""


class Pupil(Protocol):
    @property
    def head(self) -> Weights: ...

    @property
    def depth(self) -> int:
        """Longest draft."""

    @property
    def least(self) -> int:
        """Fewest tokens of a text that teaches anything."""

    def loss(self, lesson: Lesson, rng: np.random.Generator) -> Tensor:
        """Mean nats of what it would draft, under the target's own distribution."""

    def accepted(self, lesson: Lesson) -> list[int]:
        """For every position whose token is the last known one: how many drafts after it are the text's own."""


@attrs.define(eq=False)
class Borrowed:
    """What a head uses of its target, or has itself. d2t: [Vd] int64, the target's id of every row of logits."""

    head: Weights
    embedding: Tensor
    output: Tensor | None
    d2t: Tensor | None

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ (self.head["output.weight"] if self.output is None else self.output).T

    def law(self, lesson: Lesson) -> Tensor:
        """[T, Vd] the target's distribution of the token after each; what cannot be drafted is lost, not spread"""
        law = lesson.logits.softmax(-1)
        return law if self.d2t is None else law[:, self.d2t]

    def nats(self, hidden: Tensor, law: Tensor) -> Tensor:
        """[R] cross entropy of what it says of hidden [R, D] with a distribution [R, Vd]"""
        logits = self.logits(hidden)
        return logits.logsumexp(-1) * law.sum(-1) - (law * logits).sum(-1)

    def drafts(self, hidden: Tensor) -> Tensor:
        """[R] the likeliest tokens, by the target's ids"""
        best = self.logits(hidden).argmax(-1)
        return best if self.d2t is None else self.d2t[best]


@attrs.define(eq=False)
class Eagle3Pupil:
    """Unrolled ``depth`` steps on its own outputs, as it drafts."""

    head: Eagle3
    lent: Borrowed
    depth: int = 4

    @property
    def least(self) -> int:
        return self.depth + 2

    def loss(self, lesson: Lesson, rng: np.random.Generator) -> Tensor:
        embedded, fused = self._pairs(lesson)
        rows, total, weights = len(embedded) - self.depth + 1, embedded.new_zeros(()), 0.0
        law, first = self.lent.law(lesson), max(0, lesson.start - 2)
        for j, y in enumerate(self.head.unroll(embedded, fused, self.depth)):
            skip = min(max(0, first - j), rows - 1)
            said = self.lent.nats(self.head.hidden(y)[skip:], law[j + 1 + skip : j + 1 + rows])
            total = total + FADE**j * said.mean()
            weights += FADE**j
        return total / weights

    @torch.no_grad()
    def accepted(self, lesson: Lesson) -> list[int]:
        embedded, fused = self._pairs(lesson)
        pad = embedded.new_zeros(self.depth - 1, embedded.shape[1])
        outputs = self.head.unroll(torch.cat([embedded, pad]), torch.cat([fused, pad]), self.depth)
        wanted = F.pad(lesson.tokens, (0, self.depth), value=-1)
        hits = [self.lent.drafts(self.head.hidden(y)) == wanted[j + 2 :][: len(y)] for j, y in enumerate(outputs)]
        return [0, *leading(torch.stack(hits, 1))]

    def embed_all(self) -> Tensor:
        """[V, D]"""
        return self.lent.embedding

    def _pairs(self, lesson: Lesson) -> tuple[Tensor, Tensor]:
        return self.lent.embed(lesson.tokens[1:]), self.head.fused(lesson.features[:-1])


@attrs.define(eq=False)
class DFlashPupil:
    """Blocks of unknown tokens at random places."""

    head: DFlash
    lent: Borrowed

    @property
    def depth(self) -> int:
        return self.head.shape.block - 1

    @property
    def least(self) -> int:
        return 3

    def loss(self, lesson: Lesson, rng: np.random.Generator) -> Tensor:
        length = len(lesson.tokens)
        places = np.arange(max(1, lesson.start - 1), length - 1)
        places = places if len(places) else np.arange(1, length - 1)
        chosen = rng.choice(places, max(1, min(len(places), length // APART)), replace=False)
        anchors = torch.from_numpy(np.sort(chosen)).to(lesson.tokens.device)
        hidden = self._hidden(lesson, anchors)
        ahead = torch.arange(1, self.depth + 1, device=anchors.device)
        at = anchors[:, None] + ahead  # [A, B - 1], the token that each row predicts
        weight = torch.exp(-(ahead - 1) * 2 / self.head.shape.block) * (at < length)
        law = self.lent.law(lesson)[(at - 1).clamp_max(length - 1).flatten()]
        nats = self.lent.nats(hidden.flatten(0, 1), law)
        return (nats * weight.flatten()).sum() / weight.sum()

    @torch.no_grad()
    def accepted(self, lesson: Lesson) -> list[int]:
        first = max(1, lesson.start)
        anchors = torch.arange(first, len(lesson.tokens), device=lesson.tokens.device)
        wanted = F.pad(lesson.tokens, (0, self.depth), value=-1)
        hits = [self._hits(lesson, part, wanted) for part in anchors.split(64)]
        return [0] * first + (leading(torch.cat(hits)) if hits else [])

    def _hits(self, lesson: Lesson, anchors: Tensor, wanted: Tensor) -> Tensor:
        at = anchors[:, None] + torch.arange(1, self.depth + 1, device=anchors.device)
        return self.lent.drafts(self._hidden(lesson, anchors).flatten(0, 1)).view(at.shape) == wanted[at]

    def _hidden(self, lesson: Lesson, anchors: Tensor) -> Tensor:
        """[A, B - 1, D] of the rows that predict"""
        tokens = anchors.new_full((len(anchors), self.head.shape.block), self.head.shape.mask)
        tokens[:, 0] = lesson.tokens[anchors]
        return self.head.blocks(self.lent.embed(tokens), self.head.fused(lesson.features), anchors)[:, 1:]


def leading(hits: Tensor) -> list[int]:
    """How many drafts of each row [R, K] are right before the first that is not."""
    return hits.long().cumprod(1).sum(1).tolist()


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
