"""A head's files, opened: an object like a target, with metadata and weights but without a forward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
from spec_kernels.model.source import Shape, TensorSource, TensorSubset
from torch import Tensor

from spec_core import Compat, Refusal, TargetInfo, hookimpl
from spec_core.errors import UsageError
from spec_core.toolkit import TrainingTexts
from spec_targets.architectures.heads.check import check_tensors
from spec_targets.architectures.heads.head import Head, Problem
from spec_targets.architectures.heads.overrides import UNREAD, change_head
from spec_targets.architectures.heads.readings import HeadReading, other_layers, readings_of


class DraftHead(Protocol):
    """The description of a head: of pairs, of blocks, or an assistant.

    kind: the method that drafts with it. name: of the file, for messages.
    """

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def info(self) -> TargetInfo:
        """Its sizes, by the names that targets have for theirs."""

    @property
    def description(self) -> str:
        """What was recognised and repaired, in one line."""

    def fit_to(self, target: TargetInfo, reading: Any = "auto") -> DraftHead:
        """As it is read for a target that it fits."""

    def sources(self, layers: int, reading: Any = "auto") -> tuple[int, ...]:
        """Hidden states that it reads of a target of ``layers`` blocks."""

    def misfit(self, target: Any, reading: Any = "auto") -> Problem | None:
        """Why it cannot draft for a target, or None."""

    def tensor_shapes(self, source: TensorSource) -> dict[str, Shape]:
        """Every tensor that it has, with its shape."""

    def rotation(self) -> tuple[Tensor, float]:
        """Radians per position [pairs] float32 by which q and k are rotated, and the factor of cos and sin."""


@attrs.define(eq=False)
class HeadCheckpoint:
    """The result of ``load(FILE, weights=False)`` for a draft head.

    head: its description. tensors: of its files, checked. tokenizer: of its files, if they have one.
    training_texts: of the model that it belongs to.
    """

    head: DraftHead
    tensors: TensorSource
    tokenizer: Any = None
    path: Path | None = None
    training_texts: TrainingTexts | None = attrs.field(default=None, init=False)
    info: TargetInfo = attrs.field(init=False)
    source: TensorSubset = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.info = attrs.evolve(
            self.head.info,
            vocab_id=self.tokenizer.identity if self.tokenizer is not None else "",
            file="" if self.path is None else str(self.path),
        )
        self.source = TensorSubset(self.tensors, self.head.tensor_shapes(self.tensors))

    @property
    def names(self) -> frozenset[str]:
        """Names of its tensors."""
        return self.source.names

    def rotation(self) -> tuple[Tensor, float]:
        """See ``DraftHead``."""
        return self.head.rotation()

    def tensor(self, name: str) -> Tensor:
        """A weight in its stored type, float32 if it was quantised. Raises KeyError."""
        return self.source.load(name)

    def fit_to(self, target: Any, reading: str = "auto") -> HeadCheckpoint:
        """The file as it is read for a target that it fits."""
        head = self.head.fit_to(target.info, reading)
        return self if head is self.head else HeadCheckpoint(head, self.tensors, self.tokenizer, self.path)

    def readings(self, target: Any, others: bool = False) -> list[HeadReading]:
        """Other readings that its file allows for a target that it fits. others: those with one other hidden state."""
        head, layers = self.head, target.info.layers
        if not isinstance(head, Head):
            return []
        sources = head.sources(layers)
        return list(other_layers(layers, sources) if others else readings_of(head, self.tensors, layers, sources))

    def read_as(self, changes: Mapping[str, Any]) -> HeadCheckpoint:
        """The file in another reading. Raises UsageError where that is impossible."""
        tensors: Any = self.tensors
        tensors = attrs.evolve(tensors)
        head = change_head(self.head, changes, tensors)
        check_tensors(head, tensors, UNREAD)
        return HeadCheckpoint(head, tensors, self.tokenizer, self.path)

    def misfit(self, target: Any, reading: str = "auto") -> Problem | None:
        """Why it cannot draft for a target, or None: other sizes, or other tokens."""
        return self.head.misfit(target, reading) or self._other_tokens(target)

    def _other_tokens(self, target: Any) -> Problem | None:
        """Compare the file's own tokenizer, if any, with the target's, padding aside."""
        own, other = self.tokenizer, target.tokenizer
        if own is None or other is None or own.identity == other.identity:
            return None
        count = min(own.vocab_size, other.vocab_size)
        differs = next((i for i in range(count) if own.token_bytes(i) != other.token_bytes(i)), None)
        if differs is None:
            return None
        own_token = f"{self.head.name}: token {differs} is {own.token_bytes(differs)!r} for this head"
        other_token = f"{other.token_bytes(differs)!r} for {target.info.name}"
        return f"{own_token}, {other_token}", "use a head trained for this very model"

    @hookimpl
    def compat(self) -> Compat:
        """Refuse its use as a model."""
        return Compat(refusals=[Refusal(*self._no_model())])

    def check_use(self, weights: bool | str) -> None:
        """Raise UsageError where more than metadata is asked for: it is no model."""
        if weights is not False:
            reason, hint = self._no_model()
            raise UsageError(reason, hint=hint)

    def _no_model(self) -> Problem:
        head = self.head
        return (
            f"{head.name}: this is a draft head, not a model",
            f"use it with a method and its model: -m MODEL --method {head.kind}=FILE",
        )
