"""x / sqrt(mean(x²) + eps) · weight."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension; computed in float32, given back in the dtype of ``x``.

    x: [..., D]    weight: [D], or anything that broadcasts against x
    """
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)
