"""Rotations of all positions, computed once."""

from __future__ import annotations

import torch
from torch import Tensor


class RotaryTable:
    """Rotations as complex numbers: a head with interleaved pairs is turned by one complex product.

    Heads of layout ``halves`` are brought to this one when their weights are packed (``ops.rope.interleaved``).
    Pairs behind the rotated ones are multiplied by 1, so partial rotation costs nothing.
    """

    __slots__ = ("_table",)

    def __init__(self, frequencies: Tensor, dim: int, length: int, magnitude: float = 1.0) -> None:
        """frequencies: float32 [pairs], pairs <= dim / 2    length: positions 0 to length - 1"""
        angles = torch.arange(length, device=frequencies.device).float()[:, None] * frequencies
        table = torch.ones(length, 1, dim // 2, dtype=torch.complex64, device=frequencies.device)
        table[:, 0, : len(frequencies)] = torch.polar(torch.full_like(angles, magnitude), angles)
        self._table = table

    def __call__(self, positions: Tensor) -> Tensor:
        """positions int64 [R] -> complex64 [R, 1, dim / 2], for all heads of a row."""
        return self._table[positions]
