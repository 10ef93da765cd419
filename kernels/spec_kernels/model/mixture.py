"""The sum of the chosen experts of each row, with equal bits for every number of rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.model.shapes import Experts
from spec_kernels.model.tiles import product
from spec_kernels.ops.dispatch import on_cuda
from spec_kernels.ops.moe import experts, route, route_sigmoid
from spec_kernels.ops.rowwise import rowwise


def mixture(
    x: Tensor, scores: Tensor, shape: Experts, bias: Tensor | None, gate: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    """Σ weight_e · down_e(silu(gate_e x) · up_e x).

    x: [R, D]    scores: [R, E]    gate, up: [E, D, F]    down: [E, F, D]
    """
    weights, chosen = chosen_of(scores, shape, bias)
    if on_cuda([x]):
        return experts(x, weights, chosen, gate.mT, up.mT, down.mT)
    total = torch.zeros_like(x, dtype=torch.float32)
    for expert in sorted(set(chosen.flatten().tolist())):
        rows, places = (chosen == expert).nonzero(as_tuple=True)
        mine = x[rows]
        inner = rowwise(lambda m: F.silu(m, inplace=True), product(mine, gate[expert])) * product(mine, up[expert])
        answer = product(inner, down[expert])
        total[rows] += answer.float() * weights[rows, places, None]
    return total.to(x.dtype)


def chosen_of(scores: Tensor, shape: Experts, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights float32 and experts int64 [R, used] by the router's scores [R, E]."""
    if not shape.sigmoid:
        return route(scores, shape.used, shape.normalise, shape.scale)
    bias = torch.zeros(shape.count, device=scores.device) if bias is None else bias
    groups = {"groups": shape.groups, "groups_used": shape.groups_used}
    return route_sigmoid(scores, bias, shape.used, shape.normalise, shape.scale, **groups)
