"""The loss of a dflash head."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from torch import Tensor

from spec_train.data.samples import Sample
from spec_train.heads.block_student import BlockStudent
from spec_train.heads.dflash import DFlash


@attrs.define(eq=False)
class DFlashStudent(BlockStudent[DFlash]):
    """Rows that predict their tokens alone."""

    def loss(self, samples: Sequence[Sample], rng: np.random.Generator) -> Tensor:
        anchors = [self._anchors(x, rng) for x in samples]
        return self.vocab.loss(self.states(samples, anchors).flatten(0, 1), *self.row_targets(samples, anchors))
