"""What a target says about a text: its hidden states, and the distribution of the next token after every one.

Any target can teach that serves hidden states through its protocol; nothing of it is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Texts
from typing import TYPE_CHECKING

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_core import Needs, Target
from spec_core.errors import UsageError
from spec_core.toolkit import evaluate

if TYPE_CHECKING:
    from spec_train.shelf import Shelf

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
    def of(cls, logits: Tensor) -> Likely:
        """logits: [T, V]"""
        logits = logits.float()
        top, ids = logits.topk(min(LIKELY, logits.shape[-1]), -1, sorted=False)
        return cls(ids.int(), (top - logits.logsumexp(-1, keepdim=True)).exp().half())

    @classmethod
    def joined(cls, parts: Texts[Likely]) -> Likely:
        return cls(torch.cat([x.ids for x in parts]), torch.cat([x.p for x in parts]))

    def behind(self, rows: int) -> Likely:
        """With so many rows of zeros before them, which teach nothing."""
        return Likely(*(F.pad(x, (0, 0, rows, 0)) for x in (self.ids, self.p)))

    def __getitem__(self, rows: Tensor | slice) -> Likely:
        """As int64 and float32."""
        return Likely(self.ids[rows].long(), self.p[rows].float())


@attrs.frozen(eq=False)
class Lesson:
    """tokens: [T] int64. features: [T, inputs x width] bfloat16. likely: of the tokens after each, from the last one of
    the prompt on."""

    tokens: Tensor
    features: Tensor
    likely: Likely
    start: int

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in (self.tokens, self.features, self.likely.ids, self.likely.p))


@attrs.define(eq=False)
class Teacher:
    """A target, and which hidden states are read: i enters block i, i = number of blocks is after the final norm."""

    target: Target
    sources: Texts[int]

    @property
    def needs(self) -> Needs:
        last = self.target.info.layers
        return Needs(hidden=frozenset(self.sources) - {last}, final=last in self.sources)

    def features(self, hidden: Mapping[int, Tensor], final: Tensor | None) -> Tensor:
        """[T, inputs x width] bfloat16, of the rows of a forward."""
        last = self.target.info.layers
        return torch.cat([(final if i == last else hidden[i]).bfloat16() for i in self.sources], -1)

    def lesson(self, row: Row) -> Lesson:
        """One forward over a row from position 0."""
        found = evaluate(self.target, list(row.tokens), self.needs | Needs(all_logits=True))
        told = max(0, row.start - 1)
        return Lesson(
            torch.tensor(row.tokens, device=self.target.info.device),
            self.features(found.hidden, found.final),
            Likely.of(found.logits[told:]).behind(told),
            row.start,
        )


@attrs.define(eq=False)
class Lessons:
    """Lessons by number. Those that fit into ``room`` bytes stay in memory, others come from the shelf; a row that is
    nowhere is asked for."""

    teacher: Teacher
    rows: Texts[Row]
    room: int
    shelf: Shelf | None = None
    _kept: dict[int, Lesson] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Lesson]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Lesson:
        if i in self._kept:
            return self._kept[i]
        lesson = self._found(self.rows[i])
        if lesson.bytes <= self.room:
            self._kept[i] = lesson
            self.room -= lesson.bytes
        return lesson

    def _found(self, row: Row) -> Lesson:
        if self.shelf is None:
            return self.teacher.lesson(row)
        if (lesson := self.shelf.get(row)) is None:
            lesson = self.teacher.lesson(row)
            self.shelf.put(row, lesson)
        return lesson


def matrix(target: Target, name: str, about: str) -> Tensor:
    """A weight of the target, float32. Raises UsageError where it has none of that name."""
    try:
        return target.tensor(name).detach().float().clone()
    except KeyError as error:
        raise UsageError(
            f"{target.info.name} shows no {about} ({name})", hint="train on a target that does, such as a GGUF file"
        ) from error
