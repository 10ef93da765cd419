"""A draw as integers: the choice from one row of logits, as kernels read it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_kernels.model.batch import ChosenRows

FIELDS = 10
"""Integers of a draw: temperature (float64), seed (2), output position, stream, domain, row, copy, and one unused."""
TEMPERATURE, SEED, COUNTER, ROW, COPY = 0, 2, 4, 7, 8
"""The first field of each."""
NONE = -1
_WORD = (1 << 32) - 1


def write_texts(draws: np.ndarray, texts: Sequence[ChosenRows]) -> None:
    """Describe the choices of texts at their rows of logits; other rows have none.

    draws: [R, FIELDS] int32, written
    """
    draws[:, ROW] = draws[:, COPY] = NONE
    for text in texts:
        seed, stream, domain = text.source
        rows = slice(text.row, text.row + len(text.depths))
        draws[rows, TEMPERATURE:SEED] = np.array([text.sampling.temperature], np.float64).view(np.int32)
        draws[rows, SEED:COUNTER] = np.array([seed & (1 << 64) - 1], np.uint64).view(np.int32)
        draws[rows, COUNTER] = np.add(text.depths, text.t)
        draws[rows, COUNTER + 1 : ROW] = np.array([stream & _WORD, domain & _WORD], np.uint32).view(np.int32)
        draws[rows, ROW] = range(rows.start, rows.stop)
