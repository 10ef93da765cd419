"""A decoder: embedding, blocks, final norm, output matrix. What a block is made of is its own affair."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from torch import Tensor

from spec_kernels.nn.forward import Forward, Scratch
from spec_kernels.nn.linear import Linear
from spec_kernels.nn.norm import RMSNorm
from spec_kernels.nn.recurrence import Recurrence
from spec_kernels.nn.rotary import RotaryTable
from spec_kernels.nn.tiles import padded
from spec_kernels.nn.window import Stretch

KEPT_ROWS = 64
"""Scratch memory is kept for forwards of up to this many rows."""


class Layer(Protocol):
    """Anything that adds to the residual stream."""

    def __call__(self, x: Tensor, normed: Tensor, forward: Forward) -> Tensor:
        """x: [R, D] the stream, normed: [R, D] the stream after the layer's norm -> the new stream [R, D]"""


class Block:
    """A mixer over positions and a feed-forward layer, each behind its norm."""

    __slots__ = ("feed", "feed_norm", "mixer", "mixer_norm")

    def __init__(self, mixer_norm: RMSNorm, mixer: Layer, feed_norm: RMSNorm, feed: Layer) -> None:
        self.mixer_norm, self.mixer, self.feed_norm, self.feed = mixer_norm, mixer, feed_norm, feed

    def __call__(self, x: Tensor, forward: Forward) -> Tensor:
        x = self.mixer(x, self.mixer_norm(x), forward)
        return self.feed(x, self.feed_norm(x), forward)


class Decoder:
    """The whole model over rows [R, D] of any number of sequences.

    embedding: [V, D]    head: D -> V
    """

    def __init__(
        self, embedding: Tensor, blocks: Sequence[Block], norm: RMSNorm, head: Linear, rotary: RotaryTable
    ) -> None:
        self.embedding, self.blocks, self.norm, self.head, self.rotary = embedding, blocks, norm, head, rotary
        self._scratch: dict[int, Scratch] = {}

    def embed(self, tokens: Tensor) -> Tensor:
        """int64 [R] -> [whole(R), D]; rows that are missing to whole tiles are copies of the last."""
        return self.embedding.index_select(0, padded(tokens))

    def trunk(
        self,
        x: Tensor,
        positions: Tensor,
        stretches: Sequence[Stretch],
        taps: Collection[int] = (),
        recurrence: Recurrence | None = None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """The residual stream after the last block, and the streams that were asked for.

        x: as ``embed`` gives it    positions: int64 [R]    stretches: together they cover rows 0 to R - 1
        taps: indices i of streams entering block i; i = len(blocks) left the last block
        recurrence: states and lineage of the same rows, where blocks are recurrent
        returns [rows of x, D] and {i: [R, D]}
        """
        count = len(positions)
        forward = Forward(self.rotary(padded(positions)), stretches, self._scratch_for(x), recurrence)
        tapped = {}
        for i, block in enumerate(self.blocks):
            if i in taps:
                tapped[i] = x[:count]
            x = block(x, forward)
        if len(self.blocks) in taps:
            tapped[len(self.blocks)] = x[:count]
        return x, tapped

    def logits(self, normed: Tensor) -> Tensor:
        """[R, D] after the final norm -> [R, V]"""
        return self.head(normed)

    def answers(self, x: Tensor) -> Tensor:
        """[R, D] of the residual stream after the last block -> logits [R, V]"""
        return self.logits(self.norm(padded(x)))[: len(x)]

    def _scratch_for(self, x: Tensor) -> Scratch:
        rows = len(x)
        if rows in self._scratch:
            return self._scratch[rows]
        made = Scratch(rows, x.dtype, x.device)
        if rows <= KEPT_ROWS:
            self._scratch[rows] = made
        return made
