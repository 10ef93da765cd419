"""A draft head in its own file: finds it, checks that it fits the target, and lists the hidden states it reads."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, Protocol

import attrs
from torch import Tensor

from spec_core.contract.rows import Span
from spec_core.contract.target import Target
from spec_core.contract.values import Needs, Refusal, TargetInfo

UNNORMED = -1
"""In place of the number of blocks, where the state after the last one is read before the final norm."""


class HeadFile(Protocol):
    """The answer of ``load(FILE, weights=False)`` for the file of a draft head.

    head: its description, with ``kind``, ``description`` in words and ``sources(layers, reading)``. source: its
    tensors, a ``spec_kernels.model.source.TensorSource``. names: of its tensors.
    """

    info: TargetInfo
    head: Any
    source: Any
    names: frozenset[str]

    def misfit(self, target: Target, reading: str = "auto") -> tuple[str, str] | None:
        """A reason and a hint if it cannot draft for a target, or None."""

    def fit_to(self, target: Target, reading: str = "auto") -> HeadFile:
        """The file as it is read for a target that it fits: its head has the target's vocabulary if none is stated."""

    def rotation(self) -> tuple[Tensor, float]:
        """Radians per position [pairs] float32 by which q and k are rotated, and the factor of cos and sin."""


@attrs.frozen(eq=False)
class DraftHead:
    """A head that fits a target.

    file: of the head. sources: the hidden states that it reads, in order: i is the input of block i, and ``last`` is
    the state after the final norm, or the one before it if that is a number that no block has.
    """

    file: HeadFile
    sources: tuple[int, ...]
    last: int

    @property
    def needs(self) -> Needs:
        return Needs(hidden={i for i in self.sources if i != self.last}, final=self.last in self.sources)

    @property
    def note(self) -> str:
        """What was recognised in its file, and repaired, in one line."""
        return f"{self.file.info.name}: {self.file.head.description}"

    def states(self, span: Span) -> list[Tensor]:
        """[n, D] of a span for each of the sources."""
        return [span.final if i == self.last else span.hidden[i] for i in self.sources]

    def copy(self, span: Span) -> Span:
        """A span that stays valid after the step, with the states of the sources and no others."""
        hidden = {i: state.clone() for i, state in zip(self.sources, self.states(span), strict=True)}
        final = hidden.pop(self.last, None)
        embeds = {i: embed.clone() for i, embed in span.next_embeds.items()}
        return attrs.evolve(span, hidden=hidden, final=final, next_embeds=embeds)


def draft_head(
    target: Target,
    kind: str,
    file: str | HeadFile | None,
    load: Callable[..., Target],
    reading: str = "auto",
    trainable: bool = True,
) -> DraftHead | Refusal:
    """The head of a kind from a file, or one that is open, or the target's own; a Refusal if none fits.

    load: ``spec_core.load``. trainable: whether ``spec train`` makes such heads. Reads no weight of the target.
    Raises UsageError for a file that cannot be read.
    """
    file = target.info.companions.get(kind) if file in (None, "") else file
    if file is None:
        hint = f"name one: --method {kind}=FILE" + (f", or train one: spec train {kind}" if trainable else "")
        return Refusal(f"no head is given, and {target.info.name} has none", hint)
    holder: Any = load(file, weights=False) if isinstance(file, (str, PathLike)) else file
    if refusal := _misfit(target, holder, kind, reading):
        return refusal
    holder, layers = holder.fit_to(target, reading), target.info.layers
    last = layers if getattr(holder.head, "normed", True) else UNNORMED
    return DraftHead(holder, holder.head.sources(layers, reading), last)


def _misfit(target: Target, holder: Any, kind: str, reading: str) -> Refusal | None:
    head = getattr(holder, "head", None)
    if head is None or head.kind != kind:
        other = "no draft head" if head is None else f"a head of kind {head.kind}"
        return Refusal(f"{holder.info.name} is {other}", f"give a {kind} head made for this model")
    problem = holder.misfit(target, reading)
    return Refusal(*problem) if problem else None
