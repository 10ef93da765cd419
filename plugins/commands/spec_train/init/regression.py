"""Linear regression and principal directions, from which initial weights are computed."""

from __future__ import annotations

import torch
from torch import Tensor

SLOW = 2e-3
"""Rotary frequency, in radians per position, below which dimensions change little over hundreds of positions."""
FAST = 1e-1
"""Rotary frequency, in radians per position, above which dimensions distinguish adjacent positions."""
RIDGE, SCALED_RIDGE = 1e-2, 3e-3


def ridge(x: Tensor, y: Tensor) -> Tensor:
    """[E, D] linear map from rows x [N, D] to rows y [N, E]; the penalty is relative to the mean variance of x."""
    gram = x.T @ x
    damping = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(gram + damping, x.T @ y).T


def scaled_ridge(x: Tensor, y: Tensor) -> Tensor:
    """[K, E] linear map from rows x [N, E] to rows y [N, K], independent of the scale of the columns of x."""
    spread = x.square().mean(0).sqrt().clamp_min(1e-6)
    scaled = x / spread
    gram = scaled.T @ scaled
    damping = SCALED_RIDGE * len(x) * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(gram + damping, scaled.T @ y).T / spread


def principal_directions(x: Tensor) -> tuple[Tensor, Tensor]:
    """Directions [D, D] of rows x [N, D] by descending second moment, and its root [D] along each."""
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    return vectors.flip(1).T, values.flip(0).clamp_min(1e-6).sqrt()
