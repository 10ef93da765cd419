"""Self-attention over static caches, with one fused projection."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.nn.forward import Forward
from spec_kernels.nn.heads import HeadShape
from spec_kernels.nn.linear import Linear
from spec_kernels.nn.norm import RMSNorm
from spec_kernels.ops.rowwise import rowwise


class SelfAttention:
    """x + out(attention(rope(norm(q)), rope(norm(k)), v)), the attention times sigmoid(gate h) where there is a gate.

    gate: D -> H · Dv, or None.
    qkv: outputs q heads, then k heads, then v heads; dimensions of q and k heads as interleaved rotary pairs.
    norm: weight [H + K, Dk], applied before the rotation, or None.
    layer: which layer of the cache is its own.
    """

    __slots__ = ("gate", "layer", "norm", "out", "qkv", "shape")

    def __init__(
        self,
        shape: HeadShape,
        qkv: Linear,
        out: Linear,
        norm: RMSNorm | None,
        layer: int,
        gate: Linear | None = None,
    ) -> None:
        self.shape, self.qkv, self.out, self.norm, self.layer, self.gate = shape, qkv, out, norm, layer, gate

    def __call__(self, x: Tensor, normed: Tensor, forward: Forward) -> Tensor:
        """x, normed: [R, D] -> [R, D]"""
        s = forward.heads(self.shape)
        self.qkv(normed, out=s.scratch.qkv)
        s.scratch.widen()
        if self.norm is not None:
            self.norm.inplace(s.scratch.qk)
        rowwise(torch.Tensor.mul_, s.scratch.turning, forward.rotation)
        s.attend(self.layer)
        if self.gate is not None:
            return self.out.add(x, s.scratch.out * rowwise(torch.sigmoid_, self.gate(normed)))
        return self.out.add(x, s.scratch.out)
