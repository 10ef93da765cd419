"""The sum of the chosen experts of each row, with equal bits for every number of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.model.activations import glu
from spec_kernels.model.ops import Activation
from spec_kernels.model.shapes import Experts
from spec_kernels.model.tiles import product
from spec_kernels.ops.moe import route_rows, route_sigmoid


def mixture(
    x: Tensor,
    scores: Tensor,
    experts: Experts,
    bias: Tensor | None,
    matrices: tuple[Tensor | None, Tensor, Tensor],
    act: Activation = "silu",
    biases: tuple[Tensor, ...] | None = None,
    factors: Tensor | None = None,
    limit: float = 0.0,
) -> Tensor:
    """Σ weight_e · down_e(act(gate_e x) · up_e x).

    x: [R, D]    scores: [R, E]    matrices: gate, or None for up in its place, and up [E, D, F], down [E, F, D]
    biases: [E, F], [E, F] and [E, D]    factors: [E] of the weights    limit: see ``GLU``
    """
    gate, up, down = matrices
    weights, chosen = chosen_of(scores, experts, bias)
    if factors is not None:
        weights = weights * factors[chosen]
    total = torch.zeros_like(x, dtype=torch.float32)
    for expert in sorted(set(chosen.flatten().tolist())):
        rows, places = (chosen == expert).nonzero(as_tuple=True)
        inputs = x[rows]
        risen = _answer(inputs, up, biases, 1, expert)
        inner = glu(act, risen if gate is None else _answer(inputs, gate, biases, 0, expert), risen, limit)
        answer = _answer(inner, down, biases, 2, expert)
        total[rows] += answer.float() * weights[rows, places, None]
    return total.to(x.dtype)


def _answer(x: Tensor, matrices: Tensor, biases: tuple[Tensor, ...] | None, which: int, expert: int) -> Tensor:
    y = product(x, matrices[expert])
    return y if biases is None else y + biases[which][expert].to(y.dtype)


def chosen_of(scores: Tensor, experts: Experts, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights float32 and experts int64 [R, used] by the router's scores [R, E]."""
    if not experts.sigmoid:
        return route_rows(scores, experts.used, experts.normalise, experts.scale)
    bias = torch.zeros(experts.count, device=scores.device) if bias is None else bias
    groups = {"groups": experts.groups, "groups_used": experts.groups_used}
    return route_sigmoid(scores, bias, experts.used, experts.normalise, experts.scale, **groups)
