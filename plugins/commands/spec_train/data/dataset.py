"""The samples of a training run, and the order in which its steps use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import attrs
import numpy as np

from spec_train.data.cache import SampleCache
from spec_train.data.samples import Sample, Teacher, TextSample


@attrs.define(eq=False)
class Dataset:
    """Samples by index. Up to ``memory`` bytes of them stay in memory; others are read from the cache, and samples that
    are not in the cache are computed by the teacher."""

    teacher: Teacher
    texts: Sequence[TextSample]
    memory: int
    cache: SampleCache | None = None
    _loaded: dict[int, Sample] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Sample:
        if i in self._loaded:
            return self._loaded[i]
        sample = self._load(self.texts[i])
        if sample.bytes <= self.memory:
            self._loaded[i] = sample
            self.memory -= sample.bytes
        return sample

    def _load(self, text: TextSample) -> Sample:
        if self.cache is None:
            return self.teacher.sample(text)
        if (sample := self.cache.get(text)) is None:
            sample = self.teacher.sample(text)
            self.cache.put(text, sample)
        return sample

    def batch(self, seed: int, step: int, size: int) -> list[Sample]:
        """The samples of a step: an epoch is all of them in random order. They depend on the arguments alone."""
        positions = (divmod(i, len(self)) for i in range(step * size, (step + 1) * size))
        return [self[int(order(seed, epoch, len(self))[at])] for epoch, at in positions]


@lru_cache(maxsize=4)
def order(seed: int, epoch: int, count: int) -> np.ndarray:
    """[count] the permutation of an epoch."""
    return np.random.default_rng([seed, 4, epoch]).permutation(count)
