"""DFlash (block diffusion drafter, z-lab) for training: blocks of mask tokens that attend to features of the context.

Shapes: T positions, A anchors, B tokens of a block, D width, h attention heads of d dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spec_train.heads.module import HeadModule, KeysValues, group_rows, split_pair

Sizes = Sequence[tuple[int, int]]
"""(number of positions, number of anchors) of each text."""


class DFlash(HeadModule):
    """Differentiable. Row i of a block predicts the token at its own position; row 0 is the last known token."""

    def blocks(self, embedded: Tensor, fused: Tensor, anchors: Tensor, sizes: Sizes = ()) -> Tensor:
        """[A, B, D] after the final norm, for all blocks at once; no block attends to another.

        embedded: [A, B, D], the anchor's token and mask tokens. fused: [T, D] features of positions 0 ... T - 1.
        anchors: [A] int64 positions of the blocks' first tokens; a block attends to the features before it. texts: the
        sizes of several texts, positions of each counted from 0; empty: all is one text.
        """
        a, b = embedded.shape[:2]
        sizes = sizes or [(len(fused), a)]
        at = (anchors[:, None] + torch.arange(b, device=anchors.device)).flatten()
        positions = torch.cat([torch.arange(t, device=at.device) for t, _ in sizes])
        x = embedded.flatten(0, 1)
        for i in range(self.shape.layers):
            x = self._layer(i, x, fused, at, positions, sizes)
        return self.norm("output_norm", x).view(a, b, -1)

    def hidden_rows(self, x: Tensor) -> Tensor:
        """The input of the output matrix."""
        return x

    def _layer(self, i: int, x: Tensor, fused: Tensor, at: Tensor, positions: Tensor, sizes: Sizes) -> Tensor:
        prefix = f"blk.{i}."
        q, own = self.queries_keys(prefix, self.norm(f"{prefix}attn_norm", x), at)
        o = self._attend(i, q, self.keys(prefix, fused, positions), own, at, sizes)
        x = x + self.linear(f"{prefix}attn_output", o.transpose(0, 1).flatten(1))
        return x + self.mlp(prefix, self.norm(f"{prefix}ffn_norm", x))

    def _attend(self, i: int, q: Tensor, context: KeysValues, own: KeysValues, at: Tensor, sizes: Sizes) -> Tensor:
        """[h, A B, d], text by text."""
        b = self.shape.block
        lengths, rows = [t for t, _ in sizes], [a * b for _, a in sizes]
        q = q * q.shape[-1] ** -0.5
        parts = zip(q.split(rows, 1), split_pair(context, lengths), split_pair(own, rows), at.split(rows), strict=True)
        return torch.cat([self._attend_text(i, *part) for part in parts], 1)

    def _attend_text(self, i: int, q: Tensor, context: KeysValues, own: KeysValues, at: Tensor) -> Tensor:
        """q: [h, A B, d]; context: [g, T, d]; own: [g, A B, d]; at: [A B] positions. Returns [h, A B, d]."""
        g, group, at = len(context[0]), len(q) // len(context[0]), at.view(-1, self.shape.block)
        outside, inside = self._masks(i, at, context[0].shape[1])
        k, v = (x.unflatten(1, at.shape)[:, None] for x in own)  # [g, 1, A, B, d]
        to_context = (group_rows(q, context[0]) @ context[0].mT).masked_fill(outside.repeat(group, 1), float("-inf"))
        to_block = (q.view(g, group, *at.shape, -1) @ k.mT).masked_fill(inside, float("-inf"))
        weights = torch.cat([to_context, to_block.flatten(1, 3)], -1).softmax(-1)
        outer, inner = weights.split([to_context.shape[-1], at.shape[1]], -1)
        inner = inner.view(g, group, *at.shape, -1)
        return (outer @ context[1]).view(q.shape) + (inner @ v).reshape(q.shape)

    def _masks(self, i: int, at: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """[A B, T] and [B, B] bool: what a row does not attend to, of the context and of its own block."""
        rows, positions = at.flatten()[:, None], torch.arange(length, device=at.device)
        outside = positions >= at[:, :1].expand_as(at).flatten()[:, None]
        distance = at[0][:, None] - at[0]
        inside = (distance < 0) & bool(self.shape.causal and self.shape.causal[i])
        if window := self.shape.windows[i] if self.shape.windows else 0:
            outside = outside | (positions <= rows - window)
            inside = inside | (distance >= window)
        return outside, inside
