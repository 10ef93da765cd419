"""A head that learns: its loss on some lessons, and how far its drafts would be accepted.

Shapes: T positions, R rows, V tokens of the target, Vd of them that can be drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spec_train.dflash import DFlash
from spec_train.eagle3 import Eagle3, Stretch
from spec_train.lessons import Lesson, Likely
from spec_train.nats import Nats
from spec_train.weights import Weights

FADE = 0.8
"""What each further step ahead weighs in the loss of eagle3."""
ONE_IN = 2
"""Of eagle3: one text in so many is unrolled; of the others only the first step is taught, which is most of what a
draft lives on."""
APART = 4
"""Of dflash: one anchor for so many tokens that are taught."""


class Pupil(Protocol):
    @property
    def head(self) -> Weights: ...

    @property
    def lent(self) -> Borrowed: ...

    @property
    def depth(self) -> int:
        """Longest draft."""

    @property
    def least(self) -> int:
        """Fewest tokens of a text that teaches anything."""

    def loss(self, lessons: Sequence[Lesson], rng: np.random.Generator) -> Tensor:
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

    def draftable(self, likely: Likely) -> Likely:
        """By rows of logits; what cannot be drafted is lost, not spread over the rest."""
        if self._row is None:
            return likely
        rows = self._row[likely.ids]
        return Likely(rows.clamp_min(0), likely.p * (rows >= 0))

    def nats(self, hidden: Tensor, likely: Likely, weight: Tensor) -> Tensor:
        """Cross entropy of what it says of hidden [R, D] with a distribution of R rows, weighted [R] and added up"""
        likely = self.draftable(likely)
        return Nats.apply(hidden, self.matrix, likely.ids, likely.p, weight)

    def drafts(self, hidden: Tensor) -> Tensor:
        """[R] the likeliest tokens, by the target's ids"""
        best = (hidden @ self.matrix.T).argmax(-1)
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

    def loss(self, lessons: Sequence[Lesson], rng: np.random.Generator) -> Tensor:
        deep = -(-len(lessons) // ONE_IN)
        whole = self._said(lessons[:deep], self.depth)
        once = [whole[0], *(self._said(lessons[deep:], 1) if lessons[deep:] else [])]
        first = torch.stack([nats for nats, _ in once]).sum() / sum(rows for _, rows in once)
        means = torch.stack([first, *(nats / rows for nats, rows in whole[1:])])
        weights = FADE ** torch.arange(self.depth, device=means.device)
        return (means * weights).sum() / weights.sum()

    def _said(self, lessons: Sequence[Lesson], depth: int) -> list[tuple[Tensor, int]]:
        """Nats of all rows that are taught, and how many they are; of every step."""
        texts = stretches(lessons, depth)
        embedded = self.lent.embed(torch.cat([x.tokens[1:] for x in lessons]))
        fused = self.head.fused(torch.cat([x.features[:-1] for x in lessons]))
        found = []
        for j, y in enumerate(self.head.unroll(embedded, fused, depth, texts)):
            likely = Likely.joined(
                [x.likely[j + 1 + t.skip : j + 1 + t.rows] for x, t in zip(lessons, texts, strict=True)]
            )
            found.append((self.lent.nats(self.head.hidden(y), likely, y.new_ones(len(y))), len(y)))
        return found

    @torch.no_grad()
    def accepted(self, lesson: Lesson) -> list[int]:
        embedded, fused = self.lent.embed(lesson.tokens[1:]), self.head.fused(lesson.features[:-1])
        pad = embedded.new_zeros(self.depth - 1, embedded.shape[1])
        text = Stretch(0, len(embedded), min(max(0, lesson.start - 1), len(embedded) - 1))
        outputs = self.head.unroll(torch.cat([embedded, pad]), torch.cat([fused, pad]), self.depth, [text])
        wanted = F.pad(lesson.tokens, (0, self.depth), value=-1)
        hits = [
            self.lent.drafts(self.head.hidden(y)) == wanted[text.skip + j + 2 :][: len(y)]
            for j, y in enumerate(outputs)
        ]
        return [0] * (1 + text.skip) + leading(torch.stack(hits, 1))

    def embed_all(self) -> Tensor:
        """[V, D]"""
        return self.lent.embedding


def stretches(lessons: Sequence[Lesson], depth: int) -> list[Stretch]:
    """Where the pairs of each lesson are. Its prompt is seen, not taught."""
    found, first = [], 0
    for lesson in lessons:
        pairs = len(lesson.tokens) - 1
        rows = pairs - depth + 1
        found.append(Stretch(first, rows, min(max(0, lesson.start - 2), rows - 1)))
        first += pairs
    return found


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

    def loss(self, lessons: Sequence[Lesson], rng: np.random.Generator) -> Tensor:
        anchors = [self._anchors(x, rng) for x in lessons]
        hidden = self._states(lessons, anchors).flatten(0, 1)
        ahead = torch.arange(1, self.depth + 1, device=hidden.device)
        fade = torch.exp(-(ahead - 1) * 2 / self.head.shape.block)
        parts, weights = [], []
        for lesson, chosen in zip(lessons, anchors, strict=True):
            at = chosen[:, None] + ahead  # [A, B - 1], the token that each row predicts
            parts.append(lesson.likely[(at - 1).clamp_max(len(lesson.tokens) - 1).flatten()])
            weights.append((fade * (at < len(lesson.tokens))).flatten())
        weight = torch.cat(weights)
        return self.lent.nats(hidden, Likely.joined(parts), weight / weight.sum())

    def _anchors(self, lesson: Lesson, rng: np.random.Generator) -> Tensor:
        """Places of last known tokens, ascending."""
        last = len(lesson.tokens) - 1
        places = np.arange(min(max(1, lesson.start - 1), last - 1), last)
        chosen = rng.choice(places, max(1, len(places) // APART), replace=False)
        return torch.from_numpy(np.sort(chosen)).to(lesson.tokens.device)

    @torch.no_grad()
    def accepted(self, lesson: Lesson) -> list[int]:
        first = max(1, lesson.start)
        anchors = torch.arange(first, len(lesson.tokens), device=lesson.tokens.device)
        wanted = F.pad(lesson.tokens, (0, self.depth), value=-1)
        hits = [self._hits(lesson, part, wanted) for part in anchors.split(64)]
        return [0] * first + (leading(torch.cat(hits)) if hits else [])

    def _hits(self, lesson: Lesson, anchors: Tensor, wanted: Tensor) -> Tensor:
        at = anchors[:, None] + torch.arange(1, self.depth + 1, device=anchors.device)
        return self.lent.drafts(self._states([lesson], [anchors]).flatten(0, 1)).view(at.shape) == wanted[at]

    def _states(self, lessons: Sequence[Lesson], anchors: Sequence[Tensor]) -> Tensor:
        """[A, B - 1, D] of the rows that predict, of all lessons"""
        known = torch.cat([x.tokens[at] for x, at in zip(lessons, anchors, strict=True)])
        tokens = known.new_full((len(known), self.head.shape.block), self.head.shape.mask)
        tokens[:, 0] = known
        fused = self.head.fused(torch.cat([x.features for x in lessons]))
        sizes = [(len(x.tokens), len(at)) for x, at in zip(lessons, anchors, strict=True)]
        return self.head.blocks(self.lent.embed(tokens), fused, torch.cat([*anchors]), sizes)[:, 1:]


def leading(hits: Tensor) -> list[int]:
    """How many drafts of each row [R, K] are right before the first that is not."""
    return hits.long().cumprod(1).sum(1).tolist()


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
