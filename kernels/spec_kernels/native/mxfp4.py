"""Blocks of MXFP4 as blocks of Q5_0 with the same values: 22 bytes for 32 numbers in place of 17.

A number of MXFP4 is 2^(e - 128) · c with c from -12 to 12; one of Q5_0 is d · (q - 16) with d of float16 and q from 0
to 31. Both have elements 0 to 15 of a block in the low halves of bytes, and 16 to 31 in the high ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

MXFP4, Q5_0 = 17, 22
"""Bytes of a block."""
CODES = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.int16) + 16
"""q of each c."""
LOWEST, HIGHEST = 104, 143
"""Exponents e whose powers of two float16 has, subnormal ones included."""
SCALES = torch.exp2(torch.arange(256, dtype=torch.float64) - 128).half()
SCALES[:LOWEST], SCALES[HIGHEST + 1 :] = 0, 0
PIECE = 1 << 20
"""Blocks converted at a time; temporary memory is a multiple of this."""


def exact(blocks: Tensor) -> bool:
    """Whether Q5_0 has all values of blocks, uint8 [..., 17 n]: zeros may have any exponent."""
    return all(_exact(piece) for piece in blocks.reshape(-1, MXFP4).split(PIECE))


def _exact(blocks: Tensor) -> bool:
    e = blocks[:, 0]
    beyond = blocks[(e < LOWEST) | (e > HIGHEST), 1:]
    return not bool((beyond & 0x77).any())


def as_q5_0(blocks: Tensor) -> Tensor:
    """uint8 [R, 17 n] to [R, 22 n], for blocks of which ``exact`` is true."""
    found = torch.cat([_converted(piece) for piece in blocks.reshape(-1, MXFP4).split(PIECE)])
    return found.view(len(blocks), -1)


def _converted(blocks: Tensor) -> Tensor:
    low, high = (CODES[half.long()] for half in (blocks[:, 1:] & 15, blocks[:, 1:] >> 4))
    fifth = torch.cat([low, high], 1).view(-1, 4, 8) >> 4
    bits = (fifth << torch.arange(8, dtype=torch.int16)).sum(2)
    codes = (low & 15) | ((high & 15) << 4)
    scales = SCALES[blocks[:, 0].long()].view(torch.uint8).view(-1, 2)
    return torch.cat([scales, bits.to(torch.uint8), codes.to(torch.uint8)], 1)
