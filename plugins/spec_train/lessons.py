"""What a target says about a text: its hidden states, and the distribution of the next token after every one.

Any target can teach that serves hidden states through its protocol; nothing of it is changed or kept.
"""

from __future__ import annotations

from collections.abc import Sequence as Texts

import attrs
import torch
from torch import Tensor

from spec_core import Needs, Target, TargetOutput
from spec_core.errors import UsageError
from spec_core.toolkit import evaluate


@attrs.frozen
class Row:
    """Tokens of one text. What counts begins at ``start``: before it is a prompt."""

    tokens: tuple[int, ...]
    start: int = 0


@attrs.frozen(eq=False)
class Lesson:
    """tokens: [T] int64. features: [T, inputs x width] float32. logits: [T, V] of the tokens after each; or None."""

    tokens: Tensor
    features: Tensor
    logits: Tensor | None
    start: int


@attrs.define(eq=False)
class Teacher:
    """A target, and which hidden states are read: i enters block i, i = number of blocks is after the final norm."""

    target: Target
    sources: Texts[int]

    def lesson(self, row: Row, logits: bool = True) -> Lesson:
        """One forward over a row from position 0."""
        found = self._forward(row.tokens)
        last = self.target.info.layers
        features = [found.final if i == last else found.hidden[i] for i in self.sources]
        return Lesson(
            torch.tensor(row.tokens, device=self.target.info.device),
            torch.cat([f.float() for f in features], -1).clone(),
            found.logits.float().clone() if logits else None,
            row.start,
        )

    def _forward(self, tokens: Texts[int]) -> TargetOutput:
        last = self.target.info.layers
        needs = Needs(hidden=frozenset(self.sources) - {last}, final=last in self.sources, all_logits=True)
        return evaluate(self.target, list(tokens), needs)


def matrix(target: Target, name: str, about: str) -> Tensor:
    """A weight of the target, float32. Raises UsageError where it has none of that name."""
    try:
        return target.tensor(name).detach().float().clone()
    except KeyError as error:
        raise UsageError(
            f"{target.info.name} shows no {about} ({name})", hint="train on a target that does, such as a GGUF file"
        ) from error
