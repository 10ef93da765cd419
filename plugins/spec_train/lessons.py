"""What a target says about a text: its hidden states, and the distribution of the next token after every one.

Any target can teach that serves hidden states through its protocol; nothing of it is changed.
"""

from __future__ import annotations

from collections.abc import Sequence as Texts

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_core import Needs, Target, TargetOutput
from spec_core.errors import UsageError
from spec_core.toolkit import evaluate

LIKELY = 32
"""Tokens of a distribution that are kept: the likeliest."""


@attrs.frozen
class Row:
    """Tokens of one text. What counts begins at ``start``: before it is a prompt."""

    tokens: tuple[int, ...]
    start: int = 0


@attrs.frozen(eq=False)
class Likely:
    """The likeliest tokens after each of T positions: ids [T, k] int32 and p [T, k] float16, their probabilities."""

    ids: Tensor
    p: Tensor

    @classmethod
    def of(cls, logits: Tensor, first: int = 0) -> Likely:
        """logits: [T, V]; those before ``first`` teach nothing and are left out, as zeros."""
        p, ids = logits[first:].float().softmax(-1).topk(min(LIKELY, logits.shape[-1]), -1, sorted=False)
        return cls(*(F.pad(x, (0, 0, first, 0)) for x in (ids.int(), p.half())))

    def __getitem__(self, rows: Tensor | slice) -> Likely:
        """As int64 and float32."""
        return Likely(self.ids[rows].long(), self.p[rows].float())


@attrs.frozen(eq=False)
class Lesson:
    """tokens: [T] int64. features: [T, inputs x width] bfloat16. likely: of the tokens after each; or None."""

    tokens: Tensor
    features: Tensor
    likely: Likely | None
    start: int

    @property
    def bytes(self) -> int:
        likely = [] if self.likely is None else [self.likely.ids, self.likely.p]
        return sum(t.nbytes for t in (self.tokens, self.features, *likely))


@attrs.define(eq=False)
class Teacher:
    """A target, and which hidden states are read: i enters block i, i = number of blocks is after the final norm."""

    target: Target
    sources: Texts[int]

    def lesson(self, row: Row, likely: bool = True) -> Lesson:
        """One forward over a row from position 0."""
        found = self._forward(row.tokens, likely)
        last = self.target.info.layers
        features = [found.final if i == last else found.hidden[i] for i in self.sources]
        return Lesson(
            torch.tensor(row.tokens, device=self.target.info.device),
            torch.cat([f.bfloat16() for f in features], -1),
            Likely.of(found.logits, max(0, row.start - 2)) if likely else None,
            row.start,
        )

    def _forward(self, tokens: Texts[int], all_logits: bool) -> TargetOutput:
        last = self.target.info.layers
        needs = Needs(hidden=frozenset(self.sources) - {last}, final=last in self.sources, all_logits=all_logits)
        return evaluate(self.target, list(tokens), needs)


@attrs.define(eq=False)
class Lessons:
    """Lessons by number; those that fit into ``room`` bytes are asked for once."""

    teacher: Teacher
    rows: Texts[Row]
    room: int
    _kept: dict[int, Lesson] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Lesson:
        if i in self._kept:
            return self._kept[i]
        lesson = self.teacher.lesson(self.rows[i])
        if lesson.bytes <= self.room:
            self._kept[i] = lesson
            self.room -= lesson.bytes
        return lesson


def matrix(target: Target, name: str, about: str) -> Tensor:
    """A weight of the target, float32. Raises UsageError where it has none of that name."""
    try:
        return target.tensor(name).detach().float().clone()
    except KeyError as error:
        raise UsageError(
            f"{target.info.name} shows no {about} ({name})", hint="train on a target that does, such as a GGUF file"
        ) from error
