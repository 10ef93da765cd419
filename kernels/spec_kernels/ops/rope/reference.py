"""(a, b) -> (a cos - b sin, a sin + b cos) for every pair of a head."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Pairs = Literal["interleaved", "halves"]
"""Dimensions of pair i of D rotated ones: (2i, 2i + 1), or (i, i + D / 2)."""


def rope(x: Tensor, positions: Tensor, frequencies: Tensor, pairs: Pairs, rope_scale: float = 1.0) -> Tensor:
    """Turn the first 2 · len(frequencies) dimensions of every head; the others pass through.

    x: [R, H, D]    positions: [R] int64    frequencies: float32 [pairs]
    rope_scale: what cos and sin are multiplied by (YaRN)
    """
    rotated = 2 * len(frequencies)
    angles = positions.float()[:, None, None] * frequencies  # [R, 1, pairs]
    cos, sin = angles.cos() * rope_scale, angles.sin() * rope_scale
    head = x[..., :rotated]
    if pairs == "interleaved":
        a, b = head[..., 0::2], head[..., 1::2]
        out = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    else:
        a, b = head.chunk(2, -1)
        out = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    return torch.cat([out.to(x.dtype), x[..., rotated:]], -1)


def interleaved_order(dim: int, rotated: int) -> Tensor:
    """int64 [dim]: the dimensions of a head of layout ``halves`` in the order that makes it ``interleaved``.

    q · k does not change when both are reordered alike.
    """
    halves = torch.arange(rotated).view(2, -1).T.flatten()
    return torch.cat([halves, torch.arange(rotated, dim)])
