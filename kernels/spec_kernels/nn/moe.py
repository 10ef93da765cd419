"""Mixture of experts for few rows and for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.nn.linear import LEAST_ROWS, Linear
from spec_kernels.ops.dispatch import on_cuda
from spec_kernels.ops.moe import experts

if TYPE_CHECKING:
    from spec_kernels.nn.forward import Forward

Route = Callable[[Tensor], tuple[Tensor, Tensor]]
FEW_ROWS = 16
"""Up to here every expert in use answers all rows: reading its weights costs more than the products."""


class SharedExpert:
    """An expert that answers every row: down(silu(gate h) · up h), times sigmoid(h · weight) where it is gated.

    gate_up: D -> 2 F, gate first    down: F -> D    weight: [D] or None
    """

    __slots__ = ("down", "gate_up", "weight")

    def __init__(self, gate_up: Linear, down: Linear, weight: Tensor | None) -> None:
        self.gate_up, self.down, self.weight = gate_up, down, weight

    def __call__(self, h: Tensor) -> Tensor:
        gate, up = self.gate_up(h).chunk(2, dim=1)
        answer = self.down(F.silu(gate).mul_(up))
        # A product with one column takes another path through BLAS for every number of rows.
        return answer if self.weight is None else answer * (h * self.weight).sum(1, keepdim=True).sigmoid()


class MoE:
    """x + Σ weight_e · down_e(silu(gate_e h) · up_e h) over the experts that the router chose, + the shared expert.

    router: packed float32 [D, E]    route: logits [R, E] -> weights, chosen [R, top]
    gate_up: packed [E, D, 2 F], gate first    down: packed [E, F, D]
    """

    __slots__ = ("down", "gate_up", "route", "router", "shared")

    def __init__(
        self, router: Tensor, route: Route, gate_up: Tensor, down: Tensor, shared: SharedExpert | None = None
    ) -> None:
        self.router, self.route, self.gate_up, self.down, self.shared = router, route, gate_up, down, shared

    def __call__(self, x: Tensor, normed: Tensor, forward: Forward) -> Tensor:
        """x, normed: [R, D] -> [R, D]"""
        weights, chosen = self.route(torch.mm(normed.float(), self.router))
        y = x + self._sum(normed)(normed, weights, chosen).to(x.dtype)
        return y if self.shared is None else y.add_(self.shared(normed))

    def _sum(self, h: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        if on_cuda([h]):
            return self._together
        return self._few if len(h) <= FEW_ROWS else self._many

    def _together(self, h: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """All experts in one operator: the host never learns which are in use."""
        gate, up = self.gate_up.mT.chunk(2, dim=1)
        return experts(h, weights, chosen, gate, up, self.down.mT)

    def _few(self, h: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Every row through every expert in use, weight 0 where it was not chosen."""
        spread = weights.new_zeros(len(h), len(self.gate_up)).scatter_(1, chosen, weights)
        total = torch.zeros_like(h, dtype=torch.float32)
        for expert in sorted(set(chosen.flatten().tolist())):
            total.addcmul_(self._answer(expert, h).float(), spread[:, expert, None])
        return total

    def _many(self, h: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Each expert in use answers its own rows."""
        total = torch.zeros_like(h, dtype=torch.float32)
        for expert in sorted(set(chosen.flatten().tolist())):
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            mine = h[rows] if len(rows) >= LEAST_ROWS else h[rows].expand(LEAST_ROWS, -1)
            answer = self._answer(expert, mine)[: len(rows)].float()
            total[rows] = torch.addcmul(total[rows], answer, weights[rows, places, None])
        return total

    def _answer(self, expert: int, h: Tensor) -> Tensor:
        gate, up = torch.mm(h, self.gate_up[expert]).chunk(2, dim=1)
        return torch.mm(F.silu(gate) * up, self.down[expert])
