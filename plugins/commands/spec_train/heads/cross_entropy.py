"""Cross entropy over a vocabulary, the most expensive part of training a small head.

The gradient is computed in the forward, a chunk of rows at a time, so that no matrix of rows by tokens is stored.

Shapes: R rows, D width, V tokens that can be drafted, k of them with a probability.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 512
"""Rows whose logits are in memory at a time."""


class CrossEntropy(torch.autograd.Function):
    """Weighted sum, in nats, of the cross entropy of softmax(hidden @ output') with distributions whose sum may be
    below 1.

    ``CrossEntropy.apply(hidden [R, D], output [V, D], ids [R, k], p [R, k], weight [R])``; ids are rows of ``output``.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, output: Tensor, ids: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        kind = torch.bfloat16 if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
        rows, matrix = hidden.detach().to(kind), output.detach().to(kind)
        total = hidden.new_zeros(())
        hidden_grad = torch.empty_like(rows)
        output_grad = torch.zeros_like(output) if ctx.needs_input_grad[1] else None
        for at in range(0, len(rows), CHUNK):
            part = slice(at, at + CHUNK)
            loss, grad = loss_and_gradient(rows[part] @ matrix.T, ids[part], p[part], weight[part])
            total += loss
            hidden_grad[part] = grad @ matrix
            if output_grad is not None:
                output_grad += grad.T @ rows[part]
        ctx.save_for_backward(hidden_grad.to(hidden.dtype), output_grad)
        return total

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, output_grad = ctx.saved_tensors
        return scale * hidden_grad, None if output_grad is None else scale * output_grad, None, None, None


def loss_and_gradient(logits: Tensor, ids: Tensor, p: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted sum of the cross entropy of some rows in nats, and its gradient [R, V], stored in ``logits``."""
    chosen = logits.gather(1, ids).float()
    top = logits.amax(-1, keepdim=True)
    shares = logits.sub_(top).exp_()
    total, mass = shares.sum(-1, dtype=torch.float32), p.sum(-1)
    nats = (total.log() + top[:, 0].float()) * mass - (p * chosen).sum(-1)
    shares *= (weight * mass / total)[:, None].to(logits.dtype)
    shares.scatter_add_(1, ids, (-weight[:, None] * p).to(logits.dtype))
    return (nats * weight).sum(), shares
