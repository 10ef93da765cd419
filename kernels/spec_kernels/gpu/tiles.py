"""Sizes of tiles of attention. Imports no triton: a model is checked before its kernels are loaded."""

from __future__ import annotations

import torch

from spec_kernels.model.shapes import HeadShape

PAGE = 128
"""Places of a piece of attention, and of a page of a cache."""
HEIGHT = 64
"""Queries of a tile: rows of a sequence, times query heads of a group; fewer where heads are wide."""
HEAD_BYTES = 512
"""Bytes of a row of the widest head for which a tile has HEIGHT queries: they lie in shared memory."""


def power_of_two(count: int) -> int:
    """The smallest that is not below ``count``."""
    return 1 << max(0, count - 1).bit_length()


LATENT_HEADS = 16
"""Max heads of a tile that read one latent."""


def tile_of(shape: HeadShape, dtype: torch.dtype) -> tuple[int, int]:
    """Queries of a tile of attention, and how many of them are heads of one row."""
    if shape.latent:
        return 64 // dtype.itemsize, min(LATENT_HEADS, shape.heads)
    return tile_height(shape.dim, dtype), shape.group


def tile_height(dim: int, dtype: torch.dtype) -> int:
    """Queries of a tile of heads of this width."""
    return max(16, HEIGHT * HEAD_BYTES // max(HEAD_BYTES, power_of_two(dim) * dtype.itemsize))
