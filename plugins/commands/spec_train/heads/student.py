"""The interface between training and a head of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from spec_train.data.samples import Sample
from spec_train.heads.module import HeadModule
from spec_train.heads.vocabulary import Vocabulary


class Student(Protocol):
    @property
    def head(self) -> HeadModule: ...

    @property
    def vocab(self) -> Vocabulary: ...

    @property
    def draft_max(self) -> int:
        """Length of the longest draft."""

    @property
    def min_tokens(self) -> int:
        """Min length of a text that it can be trained on."""

    def loss(self, samples: Sequence[Sample], rng: np.random.Generator) -> Tensor:
        """Mean cross entropy in nats of its drafts with the target's distribution."""

    def accepted_counts(self, sample: Sample) -> list[int]:
        """Number of drafts after each position, as the last known token, that equal the tokens of the text."""


def count_leading(hits: Tensor) -> list[int]:
    """Number of drafts of each row [R, K] that are accepted before the first rejected one."""
    return hits.long().cumprod(1).sum(1).tolist()


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
