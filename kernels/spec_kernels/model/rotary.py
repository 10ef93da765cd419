"""Cosines and sines of positions, computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import torch
from torch import Tensor

from spec_kernels.ops.rowwise import rowwise

FIRST = 1024
"""Positions that are computed first; then twice the requested number, in multiples of FIRST."""


class RotaryTables:
    """Cosines and sines of a model's positions, computed once for the executors that share them.

    tables: frequencies and factor of each table.
    """

    def __init__(self, tables: Sequence[tuple[Tensor, float]]) -> None:
        self.tables = list(tables)
        self._lock = Lock()
        self._computed: list[list[tuple[Tensor, Tensor]]] = []  # all are kept: another thread may be reading them

    def of_positions(self, positions: int) -> list[tuple[Tensor, Tensor]]:
        """cos and sin of each table, float32 [``positions`` or more, pairs]."""
        with self._lock:
            if not self._computed or len(self._computed[-1][0][0]) < positions:
                self._computed.append([cos_and_sin(*table, positions) for table in self.tables])
            return self._computed[-1]

    def is_for(self, tables: Sequence[tuple[Tensor, float]]) -> bool:
        """Whether these are the same tables."""
        both = zip(self.tables, tables, strict=False)
        return len(tables) == len(self.tables) and all(a is b and x == y for (a, x), (b, y) in both)


def cos_and_sin(frequencies: Tensor, rope_scale: float, positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [positions or more, pairs], times ``rope_scale``. frequencies: radians per position."""
    count = max(FIRST, -(-2 * positions // FIRST) * FIRST)
    angles = torch.arange(count, device=frequencies.device).float()[:, None] * frequencies
    wide = angles.flatten().view(-1, FIRST)  # whole vectors: a remainder would be rounded differently
    both = (rowwise(function, wide.clone()).view_as(angles) for function in (torch.cos_, torch.sin_))
    cos, sin = (m * rope_scale for m in both)
    return cos, sin
