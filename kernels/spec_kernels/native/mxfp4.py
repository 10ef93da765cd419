"""Blocks of MXFP4 as blocks of Q5_0 with the same values: 22 bytes for 32 numbers in place of 17.

A number of MXFP4 is 2^(e - 128) · c with c from -12 to 12; one of Q5_0 is d · (q - 16) with d of float16 and q from 0
to 31, so q is 16 + c. Both have elements 0 to 15 of a block in the low halves of bytes, and 16 to 31 in the high ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

MXFP4, Q5_0 = 17, 22
"""Bytes of a block."""
CODES = np.array([16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4], dtype=np.uint8)
"""q of each c."""
LOW_BITS = (CODES & 15 | (CODES[:, None] & 15) << 4).ravel()
"""Four bits of both q of each byte."""
POSITIVE = 8
"""The last code whose q has a fifth bit; the codes up to it stand for positive numbers and -0."""
LOWEST, HIGHEST = 104, 143
"""Exponents e whose powers of two float16 has, subnormal ones included."""
SCALES = torch.exp2(torch.arange(256, dtype=torch.float64) - 128).half()
SCALES[:LOWEST], SCALES[HIGHEST + 1 :] = 0, 0
PIECE = 1 << 14
"""Blocks converted at a time, few enough for the second-level cache."""


def is_exact(blocks: Tensor) -> bool:
    """Whether Q5_0 has all values of blocks, uint8 [..., 17 n]: zeros may have any exponent."""
    return all(_exact(piece) for piece in blocks.reshape(-1, MXFP4).split(PIECE))


def _exact(blocks: Tensor) -> bool:
    e = blocks[:, 0]
    beyond = blocks[(e < LOWEST) | (e > HIGHEST), 1:]
    return not bool((beyond & 0x77).any())


def as_q5_0(blocks: Tensor) -> Tensor:
    """Convert blocks for which ``is_exact`` is true, uint8 [R, 17 n] to [R, 22 n]."""
    rows = blocks.reshape(-1, MXFP4).numpy()
    converted = np.empty((len(rows), Q5_0), dtype=np.uint8)
    for at in range(0, len(rows), PIECE):
        _convert(rows[at : at + PIECE], converted[at : at + PIECE])
    return torch.from_numpy(converted).view(len(blocks), -1)


def _convert(blocks: np.ndarray, to: np.ndarray) -> None:
    codes = np.ascontiguousarray(blocks[:, 1:])
    to[:, :2] = SCALES.numpy().view(np.uint8).reshape(256, 2)[blocks[:, 0]]
    to[:, 2:4] = _bits(codes & 15 <= POSITIVE)
    to[:, 4:6] = _bits(codes >> 4 <= POSITIVE)
    to[:, 6:] = np.take(LOW_BITS, codes)


def _bits(fifth: np.ndarray) -> np.ndarray:
    """bool [R, 16] in two bytes of each row."""
    return np.packbits(fifth.ravel(), bitorder="little").reshape(-1, 2)
