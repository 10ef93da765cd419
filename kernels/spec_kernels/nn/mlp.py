"""Feed-forward parts of a block: SwiGLU, dense or as a mixture of experts."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.ops.moe import route


@attrs.frozen(eq=False)
class Mlp:
    """gate_up: [D, 2F] and down: [F, D], transposed. x [R, D] -> residual + down(silu(gate) * up)."""

    gate_up: Tensor
    down: Tensor

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        gate, up = torch.mm(x, self.gate_up).chunk(2, -1)
        return torch.addmm(residual, F.silu(gate) * up, self.down)


@attrs.frozen(eq=False)
class Moe:
    """router: [E, D] float32; gate_up: [E, 2F, D]; down: [E, D, F]; used experts per token."""

    router: Tensor
    gate_up: Tensor
    down: Tensor
    used: int
    normalise: bool

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        weights, chosen = route(F.linear(x.float(), self.router), self.used, self.normalise)
        return residual + expert_by_expert(x, weights, chosen, self.gate_up, self.down)


def expert_by_expert(x: Tensor, weights: Tensor, chosen: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Twin of ``ops/moe``: every expert's weights are read once, whatever the number of rows.

    x: [R, D]; weights, chosen: [R, top]; gate_up: [E, 2F, D], gate rows first; down: [E, D, F] -> [R, D].
    """
    out = torch.zeros_like(x)
    for e in sorted(set(chosen.flatten().tolist())):
        row, at = (chosen == e).nonzero(as_tuple=True)
        gate, up = F.linear(x[row], gate_up[e]).chunk(2, -1)
        out.index_add_(0, row, F.linear(F.silu(gate) * up, down[e]) * weights[row, at, None].to(x.dtype))
    return out
