"""Matrix products with a weight that was packed once."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.nn.tiles import product


class Linear:
    """x Wᵀ + b with the weight held as [in, out] in one piece.

    Measured on a CPU in float32, 8 rows against this layout cost about 1.3 times one row; against [out, in] twice.
    """

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: [out, in]    bias: [out]"""
        self.weight = weight.T.contiguous()
        self.bias = bias

    @classmethod
    def packed(cls, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """weight: [in, out], used as it is."""
        made = cls.__new__(cls)
        made.weight, made.bias = weight, bias
        return made

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x [R, in] -> [R, out]"""
        y = product(x, self.weight, out)
        return y if self.bias is None else y.add_(self.bias)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual [R, out] + x Wᵀ + b, as a new tensor."""
        return self(x).add_(residual)


def pack(weights: list[Tensor]) -> Tensor:
    """Weights [out_i, in] side by side as one packed weight [in, sum of out_i]."""
    return torch.cat([w.T for w in weights], dim=1).contiguous()
