"""Routing by softmax or sigmoid, and gated experts run one row at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def route_rows(logits: Tensor, top: int, normalise: bool, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Experts of every row and their weights: softmax over all E in float32, then the ``top`` best.

    logits: [R, E]    normalise: whether the chosen weights are divided by their sum
    returns weights float32 [R, top] and experts int64 [R, top], best first
    """
    weights, chosen = logits.float().softmax(-1).topk(top, dim=-1)
    if normalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * scale, chosen


def route_sigmoid(
    logits: Tensor, bias: Tensor, top: int, normalise: bool, scale: float = 1.0, groups: int = 1, groups_used: int = 1
) -> tuple[Tensor, Tensor]:
    """Experts by sigmoid scores, as DeepSeek-V3 and GLM-4.5 choose them: the bias decides who, not how much.

    logits: [R, E]    bias: [E]    scale: what the weights are multiplied by
    groups: E is divided into these; only the ``groups_used`` with the largest sum of their two best are chosen from
    returns weights float32 [R, top] and experts int64 [R, top]
    """
    scores = logits.float().sigmoid()
    biased = scores + bias.float()
    if groups > 1:
        grouped = biased.unflatten(1, (groups, -1))
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(groups_used, dim=-1).indices
        open_ = torch.zeros_like(grouped[..., 0], dtype=torch.bool).scatter_(1, best, True)
        biased = grouped.masked_fill(~open_[..., None], -torch.inf).flatten(1)
    chosen = biased.topk(top, dim=-1).indices
    weights = scores.gather(1, chosen)
    if normalise:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
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
