"""EAGLE-3 (Li et al., 2503.01840) for training: one block over pairs of a feature and the token after it.

Shapes: T positions, R rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spec_train.weights import Weights

PREFIX = "blk.0."


class Eagle3(Weights):
    """Differentiable, and unrolled the way it drafts: the test it will meet, in training (section 3.2)."""

    def unroll(self, embedded: Tensor, fused: Tensor, depth: int) -> list[Tensor]:
        """Outputs before the final norm, one [R, D] for each of ``depth`` steps, R = pairs - depth + 1.

        embedded: [pairs, D], row p the embedding of token p + 1. fused: [pairs, D], row p the feature of position p.
        Row p of step j has seen the true pairs up to p, then its own outputs with the tokens p + 2 ... p + 1 + j; it
        predicts token p + 2 + j.
        """
        rows = len(embedded) - depth + 1
        fed, found = fused[:rows], []
        past: list[tuple[Tensor, Tensor]] = []
        for j in range(depth):
            y = self._step(embedded[j : j + rows], fed, j, past)
            found.append(y)
            fed = self.norm("output_norm", y) if self.shape.norm_output else y
        return found

    def hidden(self, y: Tensor) -> Tensor:
        """What the output matrix reads."""
        return self.norm("output_norm", y)

    def _step(self, e: Tensor, g: Tensor, j: int, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One block; ``past`` has keys and values of the steps before and gets this one's."""
        c = self.norm(f"{PREFIX}attn_norm_2", g)
        z = torch.cat([self.norm(f"{PREFIX}attn_norm", e), c], -1)
        positions = torch.arange(len(z), device=z.device) + j
        q = self.queries(PREFIX, z, positions)
        past.append(self.keys(PREFIX, z, positions))
        o = self.linear(f"{PREFIX}attn_output", attended(q, past).transpose(0, 1).flatten(1))
        r = (c if self.shape.norm_before_residual else g) + o
        return r + self.mlp(PREFIX, self.norm(f"{PREFIX}ffn_norm", r))


def attended(q: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """[h, R, d]: row p attends to rows up to p of the first step, and to its own row of every later one."""
    (keys, values), later = past[0], past[1:]
    scale = q.shape[-1] ** -0.5
    above = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    scores = [(q @ keys.transpose(-1, -2)).masked_fill(above, float("-inf"))]
    scores += [(q * k).sum(-1, keepdim=True) for k, _ in later]
    weights = (torch.cat(scores, -1) * scale).softmax(-1)
    rows = len(above)
    out = weights[..., :rows] @ values
    for i, (_, v) in enumerate(later):
        out = out + weights[..., rows + i, None] * v
    return out
