"""DFlash (block diffusion drafter, z-lab) for training: blocks of unknown tokens that read features of the context.

Shapes: T positions, A anchors, B tokens of a block, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_train.weights import Weights


class DFlash(Weights):
    """Differentiable. Row i of a block predicts the token at its own place; row 0 is the last known token."""

    def blocks(self, embedded: Tensor, fused: Tensor, anchors: Tensor) -> Tensor:
        """[A, B, D] after the final norm, for all blocks at once; no block sees another.

        embedded: [A, B, D], the anchor's token and masks. fused: [T, D] features of positions 0 ... T - 1. anchors: [A]
        int64 positions of the blocks' first tokens; a block reads the features before it.
        """
        a, b = embedded.shape[:2]
        at = (anchors[:, None] + torch.arange(b, device=anchors.device)).flatten()
        before = torch.arange(len(fused), device=at.device)
        x = embedded.flatten(0, 1)
        for i in range(self.shape.layers):
            x = self._layer(i, x, fused, at, before, self._visible(i, a, b, at, before, anchors))
        return self.norm("output_norm", x).view(a, b, -1)

    def hidden(self, x: Tensor) -> Tensor:
        """What the output matrix reads."""
        return x

    def _layer(self, i: int, x: Tensor, fused: Tensor, at: Tensor, before: Tensor, visible: Tensor) -> Tensor:
        prefix = f"blk.{i}."
        h = self.norm(f"{prefix}attn_norm", x)
        q = self.queries(prefix, h, at)
        known, own = self.keys(prefix, fused, before), self.keys(prefix, h, at)
        k, v = (torch.cat(both, 1) for both in zip(known, own, strict=True))
        o = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=visible)[0]
        x = x + self.linear(f"{prefix}attn_output", o.transpose(0, 1).flatten(1))
        return x + self.mlp(prefix, self.norm(f"{prefix}ffn_norm", x))

    def _visible(self, i: int, a: int, b: int, at: Tensor, before: Tensor, anchors: Tensor) -> Tensor:
        """[A B, T + A B] bool: the context before the block, and the block itself."""
        context = before < anchors.repeat_interleave(b)[:, None]
        block = torch.arange(a, device=at.device).repeat_interleave(b)
        own = block[:, None] == block
        if self.shape.causal and self.shape.causal[i]:
            own &= at[:, None] >= at
        if window := self.shape.windows[i] if self.shape.windows else 0:
            context &= before > at[:, None] - window
            own &= (at[:, None] - at) < window
        return torch.cat([context, own], 1)
