"""Who sees whom among the rows that one sequence brings; what is cached before is seen by all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from spec_kernels.nn.window import causal, masked
from spec_kernels.ops.attention import ancestor_mask
from torch import Tensor

KEPT_ROWS = 64


class Masks:
    """float32 [n, n], 0 or -inf, for ``Stretch``; those of short chains are kept."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._chains: dict[int, Tensor] = {}

    def chain(self, rows: int) -> Tensor | None:
        """Every row sees itself and those before it; a single row needs no mask."""
        if rows == 1:
            return None
        if rows > KEPT_ROWS:
            return causal(rows, self.device)
        if rows not in self._chains:
            self._chains[rows] = causal(rows, self.device)
        return self._chains[rows]

    def tree(self, pending: int, parents: Sequence[int]) -> Tensor:
        """Pending rows are a chain; draft j sees them all, its ancestors and itself. Parent -1: the last pending."""
        mask = causal(pending + len(parents))
        mask[pending:, pending:] = masked(ancestor_mask(parents))
        return mask.to(self.device)
