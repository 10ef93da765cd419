"""DFlash (block diffusion drafter, z-lab) for training: blocks of unknown tokens that read features of the context.

Shapes: T positions, A anchors, B tokens of a block, D width, h attention heads of d dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spec_train.eagle3 import split
from spec_train.weights import Pair, Weights, grouped

Sizes = Sequence[tuple[int, int]]
"""Of several texts: positions and anchors of each."""


class DFlash(Weights):
    """Differentiable. Row i of a block predicts the token at its own place; row 0 is the last known token."""

    def blocks(self, embedded: Tensor, fused: Tensor, anchors: Tensor, texts: Sizes = ()) -> Tensor:
        """[A, B, D] after the final norm, for all blocks at once; no block sees another.

        embedded: [A, B, D], the anchor's token and masks. fused: [T, D] features of positions 0 ... T - 1. anchors: [A]
        int64 positions of the blocks' first tokens; a block reads the features before it. texts: (positions, anchors)
        of several texts after one another, each counted from 0; without them all is one text.
        """
        a, b = embedded.shape[:2]
        texts = texts or [(len(fused), a)]
        at = (anchors[:, None] + torch.arange(b, device=anchors.device)).flatten()
        before = torch.cat([torch.arange(t, device=at.device) for t, _ in texts])
        x = embedded.flatten(0, 1)
        for i in range(self.shape.layers):
            x = self._layer(i, x, fused, at, before, texts)
        return self.norm("output_norm", x).view(a, b, -1)

    def hidden(self, x: Tensor) -> Tensor:
        """What the output matrix reads."""
        return x

    def _layer(self, i: int, x: Tensor, fused: Tensor, at: Tensor, before: Tensor, texts: Sizes) -> Tensor:
        prefix = f"blk.{i}."
        q, own = self.looked(prefix, self.norm(f"{prefix}attn_norm", x), at)
        o = self._attended(i, q, self.keys(prefix, fused, before), own, at, texts)
        x = x + self.linear(f"{prefix}attn_output", o.transpose(0, 1).flatten(1))
        return x + self.mlp(prefix, self.norm(f"{prefix}ffn_norm", x))

    def _attended(self, i: int, q: Tensor, known: Pair, own: Pair, at: Tensor, texts: Sizes) -> Tensor:
        """[h, A B, d], text by text."""
        b = self.shape.block
        lengths, rows = [t for t, _ in texts], [a * b for _, a in texts]
        q = q * q.shape[-1] ** -0.5
        parts = zip(q.split(rows, 1), split(known, lengths), split(own, rows), at.split(rows), strict=True)
        return torch.cat([self._one(i, *part) for part in parts], 1)

    def _one(self, i: int, q: Tensor, known: Pair, own: Pair, at: Tensor) -> Tensor:
        """q: [h, A B, d]; known: [g, T, d]; own: [g, A B, d]; at: [A B] positions. Returns [h, A B, d]."""
        g, group, at = len(known[0]), len(q) // len(known[0]), at.view(-1, self.shape.block)
        before, inside = self._unseen(i, at, known[0].shape[1])
        k, v = (x.unflatten(1, at.shape)[:, None] for x in own)  # [g, 1, A, B, d]
        context = (grouped(q, known[0]) @ known[0].mT).masked_fill(before.repeat(group, 1), float("-inf"))
        block = (q.view(g, group, *at.shape, -1) @ k.mT).masked_fill(inside, float("-inf"))
        weights = torch.cat([context, block.flatten(1, 3)], -1).softmax(-1)
        seen, inner = weights.split([context.shape[-1], at.shape[1]], -1)
        inner = inner.view(g, group, *at.shape, -1)
        return (seen @ known[1]).view(q.shape) + (inner @ v).reshape(q.shape)

    def _unseen(self, i: int, at: Tensor, length: int) -> Pair:
        """[A B, T] and [B, B] bool: what a row does not see of the context, and of its own block."""
        rows, places = at.flatten()[:, None], torch.arange(length, device=at.device)
        before = places >= at[:, :1].expand_as(at).flatten()[:, None]
        distance = at[0][:, None] - at[0]
        inside = (distance < 0) & bool(self.shape.causal and self.shape.causal[i])
        if window := self.shape.windows[i] if self.shape.windows else 0:
            before = before | (places <= rows - window)
            inside = inside | (distance >= window)
        return before, inside
