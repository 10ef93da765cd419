"""What training needs of a head, whatever its kind."""

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
        """For every position, as the last known token: how many of the drafts after it are the tokens of the text."""


def count_leading(hits: Tensor) -> list[int]:
    """How many drafts of each row [R, K] are accepted before the first rejected one."""
    return hits.long().cumprod(1).sum(1).tolist()


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
