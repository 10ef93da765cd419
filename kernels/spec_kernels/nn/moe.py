"""Mixture of experts for few rows and for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spec_kernels.nn.linear import Linear
from spec_kernels.nn.mlp import silu_
from spec_kernels.nn.tiles import product
from spec_kernels.ops.dispatch import on_cuda
from spec_kernels.ops.moe import experts
from spec_kernels.ops.rowwise import LANES, rowwise

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
        answer = self.down(rowwise(silu_, gate) * up)
        return answer if self.weight is None else answer * self._gate(h)

    def _gate(self, h: Tensor) -> Tensor:
        """[R, 1]; no product: those with one column are summed in another order for every number of rows."""
        wanted = (h * self.weight).sum(1, keepdim=True)
        return rowwise(torch.sigmoid_, wanted.repeat(1, LANES))[:, :1]


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
        weights, chosen = self.route(product(normed.float(), self.router))
        y = x + self._sum(normed)(normed, weights, chosen, forward.rows).to(x.dtype)
        return y if self.shared is None else y.add_(self.shared(normed))

    def _sum(self, h: Tensor) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
        if on_cuda([h]):
            return self._together
        return self._few if len(h) <= FEW_ROWS else self._many

    def _together(self, h: Tensor, weights: Tensor, chosen: Tensor, rows: int) -> Tensor:
        """All experts in one operator: the host never learns which are in use."""
        gate, up = self.gate_up.mT.chunk(2, dim=1)
        return experts(h, weights, chosen, gate, up, self.down.mT)

    def _few(self, h: Tensor, weights: Tensor, chosen: Tensor, rows: int) -> Tensor:
        """Every row through every expert that the first ``rows`` use, weight 0 where it was not chosen."""
        spread = weights.new_zeros(len(h), len(self.gate_up)).scatter_(1, chosen, weights)
        total = torch.zeros_like(h, dtype=torch.float32)
        for expert in sorted(set(chosen[:rows].flatten().tolist())):
            total.addcmul_(self._answer(expert, h).float(), spread[:, expert, None])
        return total

    def _many(self, h: Tensor, weights: Tensor, chosen: Tensor, rows: int) -> Tensor:
        """Each expert in use answers its own of the first ``rows``."""
        total = torch.zeros_like(h, dtype=torch.float32)
        chosen = chosen[:rows]
        for expert in sorted(set(chosen.flatten().tolist())):
            mine, places = (chosen == expert).nonzero(as_tuple=True)
            answer = self._answer(expert, h[mine]).float()
            total[mine] = torch.addcmul(total[mine], answer, weights[mine, places, None])
        return total

    def _answer(self, expert: int, h: Tensor) -> Tensor:
        gate, up = product(h, self.gate_up[expert]).chunk(2, dim=1)
        return product(rowwise(silu_, gate) * up, self.down[expert])
