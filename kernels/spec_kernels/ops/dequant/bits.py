"""Pieces that several block formats share. n blocks; everything little-endian."""

from __future__ import annotations

import torch
from torch import Tensor


def numbers(data: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 [..., bytes] read as ``dtype``, given as float32 [..., bytes / size]."""
    # A clone starts at offset 0: a view in a wider dtype needs an aligned start.
    return data.clone(memory_format=torch.contiguous_format).view(dtype).float()


def half_floats(data: Tensor) -> Tensor:
    """uint8 [n, 2k] -> float32 [n, k]."""
    return numbers(data, torch.float16)


def halves(data: Tensor) -> Tensor:
    """uint8 [..., m] -> [..., 2m]: all low nibbles, then all high nibbles."""
    return torch.cat([data & 15, data >> 4], -1)


def fields(data: Tensor, width: int) -> Tensor:
    """uint8 [..., m] -> [..., 8 / width, m]: field g of a byte is its bits ``width * g`` and up."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=data.device)
    return (data.unsqueeze(-2) >> shifts[:, None]) & ((1 << width) - 1)


def five_bits(low: Tensor, high: Tensor) -> Tensor:
    """5-bit numbers [n, 32] of their nibbles [n, 16] and their fifth bits [n, 4]."""
    return halves(low) | (fields(high, 1).transpose(1, 2).reshape(-1, 32) << 4)


def pairs(data: Tensor) -> Tensor:
    """Nibbles [n, 8, 32] of qs [n, 128]: 32 low ones, then the 32 high ones of the same bytes."""
    return fields(data.reshape(-1, 4, 32), 4).flatten(1, 2)


def six_bits(low: Tensor, high: Tensor) -> Tensor:
    """6-bit numbers [n, 16, 16] of their nibbles [n, 128] and their high bits [n, 64]."""
    return fields(low.reshape(-1, 2, 64), 4).reshape(-1, 16, 16) | (
        fields(high.reshape(-1, 2, 32), 2).reshape(-1, 16, 16) << 4
    )


def scales_and_mins(data: Tensor) -> tuple[Tensor, Tensor]:
    """The 6-bit scales and mins of Q4_K and Q5_K: uint8 [n, 12] -> two [n, 8]."""
    a, b, c = data.split(4, -1)
    scales = torch.cat([a & 63, (c & 15) | ((a >> 6) << 4)], -1)
    mins = torch.cat([b & 63, (c >> 4) | ((b >> 6) << 4)], -1)
    return scales, mins


def lookup_values(table: tuple[int, ...], indices: Tensor) -> Tensor:
    """float32 values of a table at uint8 indices."""
    return torch.tensor(table, dtype=torch.float32, device=indices.device)[indices.int()]
