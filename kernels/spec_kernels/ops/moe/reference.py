"""Softmax routing, and gated experts run one row at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def route(logits: Tensor, top: int, normalise: bool, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Experts of every row and their weights: softmax over all E in float32, then the ``top`` best.

    logits: [R, E]    normalise: whether the chosen weights are divided by their sum
    returns weights float32 [R, top] and experts int64 [R, top], best first
    """
    weights, chosen = logits.float().softmax(-1).topk(top, dim=-1)
    if normalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * scale, chosen


def experts(x: Tensor, weights: Tensor, chosen: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Sum of the chosen experts' answers: weight · down(silu(gate x) · up x).

    x: [R, D]    weights, chosen: [R, top]    gate, up: [E, F, D]    down: [E, D, F]
    returns [R, D]
    """
    out = torch.zeros_like(x)
    for row, expert in ((r, e) for r in range(len(x)) for e in range(chosen.shape[1])):
        i = chosen[row, expert]
        inner = F.silu(gate[i] @ x[row]) * (up[i] @ x[row])
        out[row] += (weights[row, expert] * (down[i] @ inner)).to(x.dtype)
    return out
