"""Cosines and sines of positions, computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from spec_kernels.ops.rowwise import rowwise

FIRST = 1024
"""Positions that are computed first; then twice the requested number up to a limit, in multiples of FIRST."""


class RotaryTable(NamedTuple):
    """Rotations of some heads, by position.

    frequencies: radians per position, float32 [pairs]. scale: factor of cos and sin. growth: another factor of them at
    position p is 1 + growth · ln(1 + p // period), with which queries of long texts are scaled; 0: none.
    """

    frequencies: Tensor
    scale: float = 1.0
    growth: float = 0.0
    period: int = 1


class RotaryTables:
    """Cosines and sines of a model's positions, computed once for the executors that share them.

    limit: positions beyond which none are computed in advance; 0: there is no limit.
    """

    def __init__(self, tables: Sequence[RotaryTable], limit: int = 0) -> None:
        self.tables, self.limit = list(tables), limit
        self._lock = Lock()
        self._computed: list[tuple[Tensor, Tensor]] = []

    def of_positions(self, positions: int) -> list[tuple[Tensor, Tensor]]:
        """cos and sin of each table, float32 [``positions`` or more, pairs].

        Shorter ones are not kept: who reads them must hold them.
        """
        with self._lock:
            if not self._computed or len(self._computed[0][0]) < positions:
                self._computed = [cos_and_sin(table, positions, self.limit) for table in self.tables]
            return self._computed

    def is_for(self, tables: Sequence[RotaryTable]) -> bool:
        """Whether these are the same tables."""
        both = zip(self.tables, tables, strict=False)
        return len(tables) == len(self.tables) and all(a[0] is b[0] and a[1:] == b[1:] for a, b in both)


def cos_and_sin(table: RotaryTable, positions: int, limit: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin of a table, float32 [positions or more, pairs]. limit: see ``RotaryTables``."""
    needed = max(positions, min(2 * positions, limit or 2 * positions))
    count = max(FIRST, -(-needed // FIRST) * FIRST)
    places = torch.arange(count, device=table.frequencies.device)
    angles = places.float()[:, None] * table.frequencies
    wide = angles.flatten().view(-1, FIRST)  # whole vectors: a remainder would be rounded differently
    both = rowwise(torch.cos_, wide.clone()).view_as(angles), rowwise(torch.sin_, wide).view_as(angles)
    scale: float | Tensor = table.scale
    if table.growth:
        grown = rowwise(torch.log_, (1.0 + (places // table.period).float()).view(-1, FIRST))
        scale = table.scale * (1.0 + table.growth * grown.view(-1, 1))
    cos, sin = (m.mul_(scale) for m in both)
    return cos, sin
