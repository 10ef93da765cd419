"""The loss over a vocabulary, the dearest part of a small head: its gradient is made on the way, a few rows at a time,
so that no matrix of rows by tokens is kept.

Shapes: R rows, D width, V tokens that can be drafted, k of them that have a probability.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TOGETHER = 512
"""Rows whose logits are in memory at a time."""


class Nats(torch.autograd.Function):
    """Weighted sum of the cross entropy of softmax(hidden @ output') with distributions that may lack a share.

    ``Nats.apply(hidden [R, D], output [V, D], ids [R, k], p [R, k], weight [R])``; ids are rows of ``output``.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, output: Tensor, ids: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        kind = torch.bfloat16 if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
        given, matrix = hidden.detach().to(kind), output.detach().to(kind)
        total = hidden.new_zeros(())
        back = torch.empty_like(given)
        learnt = torch.zeros_like(output) if ctx.needs_input_grad[1] else None
        for at in range(0, len(given), TOGETHER):
            part = slice(at, at + TOGETHER)
            nats, slope = sloped(given[part] @ matrix.T, ids[part], p[part], weight[part])
            total += nats
            back[part] = slope @ matrix
            if learnt is not None:
                learnt += slope.T @ given[part]
        ctx.save_for_backward(back.to(hidden.dtype), learnt)
        return total

    @staticmethod
    def backward(ctx: Any, along: Tensor) -> tuple[Tensor | None, ...]:
        back, learnt = ctx.saved_tensors
        return along * back, None if learnt is None else along * learnt, None, None, None


def sloped(logits: Tensor, ids: Tensor, p: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Nats of some rows, and their slope with the logits [R, V], which it is written over."""
    said = logits.gather(1, ids).float()
    top = logits.amax(-1, keepdim=True)
    shares = logits.sub_(top).exp_()
    total, mass = shares.sum(-1, dtype=torch.float32), p.sum(-1)
    nats = (total.log() + top[:, 0].float()) * mass - (p * said).sum(-1)
    shares *= (weight * mass / total)[:, None].to(logits.dtype)
    shares.scatter_add_(1, ids, (-weight[:, None] * p).to(logits.dtype))
    return (nats * weight).sum(), shares
