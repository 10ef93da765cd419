"""Cosines and sines of positions, computed on demand."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.ops.rowwise import rowwise

FIRST = 1024
"""Positions that are computed first; then twice the requested number, in multiples of FIRST."""


def cos_and_sin(frequencies: Tensor, rope_scale: float, positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [positions or more, pairs], times ``rope_scale``. frequencies: radians per position."""
    count = max(FIRST, -(-2 * positions // FIRST) * FIRST)
    angles = torch.arange(count, device=frequencies.device).float()[:, None] * frequencies
    wide = angles.flatten().view(-1, FIRST)  # whole vectors: a remainder would be rounded differently
    both = (rowwise(function, wide.clone()).view_as(angles) for function in (torch.cos_, torch.sin_))
    cos, sin = (m * rope_scale for m in both)
    return cos, sin
