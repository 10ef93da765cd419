"""Training samples: the hidden states of a target on a text, and its distribution of the next token at every position.

Any target that provides hidden states can be the teacher; it is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_core import Needs, Target
from spec_core.toolkit import evaluate

TOP_K = 32
"""Number of the most likely tokens that are stored of each distribution."""


@attrs.frozen
class TextSample:
    """One text as token ids. Tokens from ``start`` on are trained on; those before it are a prompt."""

    tokens: tuple[int, ...]
    start: int = 0


@attrs.frozen(eq=False)
class TopK:
    """The most likely tokens at each of T positions: ids [T, k] int32, their probabilities p [T, k] float16."""

    ids: Tensor
    p: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> TopK:
        """logits: [T, V]"""
        logits = logits.float()
        top, ids = logits.topk(min(TOP_K, logits.shape[-1]), -1, sorted=False)
        return cls(ids.int(), (top - logits.logsumexp(-1, keepdim=True)).exp().half())

    @classmethod
    def concat(cls, parts: Sequence[TopK]) -> TopK:
        return cls(torch.cat([x.ids for x in parts]), torch.cat([x.p for x in parts]))

    def pad_front(self, rows: int) -> TopK:
        """Add ``rows`` rows of probability zero in front, which add nothing to the loss."""
        return TopK(*(F.pad(x, (0, 0, rows, 0)) for x in (self.ids, self.p)))

    def __getitem__(self, rows: Tensor | slice) -> TopK:
        """Rows as int64 and float32."""
        return TopK(self.ids[rows].long(), self.p[rows].float())


@attrs.frozen(eq=False)
class Sample:
    """A text with what the target computes on it.

    tokens: [T] int64. features: [T, inputs x width] bfloat16. top_k: of the token after each position, from the last
    position of the prompt on.
    """

    tokens: Tensor
    features: Tensor
    top_k: TopK
    start: int

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in (self.tokens, self.features, self.top_k.ids, self.top_k.p))


@attrs.define(eq=False)
class Teacher:
    """A target, and the hidden states that are read of it: i is the input of block i, the number of blocks is the state
    after the final norm."""

    target: Target
    sources: Sequence[int]

    @property
    def needs(self) -> Needs:
        last = self.target.info.layers
        return Needs(hidden=frozenset(self.sources) - {last}, final=last in self.sources)

    def features(self, hidden: Mapping[int, Tensor], final: Tensor | None) -> Tensor:
        """[T, inputs x width] bfloat16, of the rows of a forward."""
        last = self.target.info.layers
        return torch.cat([(final if i == last else hidden[i]).bfloat16() for i in self.sources], -1)

    def sample(self, text: TextSample) -> Sample:
        """One forward over a text from position 0."""
        output = evaluate(self.target, list(text.tokens), self.needs | Needs(all_logits=True))
        first = max(0, text.start - 1)
        return Sample(
            torch.tensor(text.tokens, device=self.target.info.device),
            self.features(output.hidden, output.final),
            TopK.of(output.logits[first:]).pad_front(first),
            text.start,
        )

    def final_states(self, samples: Sequence[Sample]) -> list[Tensor]:
        """[T, D] of each sample, the input of the output matrix. One forward each, unless features have them."""
        last, width = self.target.info.layers, self.target.info.width
        if last in self.sources:
            at = self.sources.index(last) * width
            return [x.features[:, at : at + width] for x in samples]
        teacher = Teacher(self.target, (last,))
        return [teacher.sample(TextSample(tuple(x.tokens.tolist()), x.start)).features for x in samples]
