"""Blocks of MXFP4 become blocks of Q5_0 with the same values, where there are such."""

from __future__ import annotations

import pytest
import torch
from spec_kernels.native.mxfp4 import HIGHEST, LOWEST, PIECE, as_q5_0, is_exact
from spec_kernels.ops.dequant import dequantize


def draw_blocks(rows: int, blocks: int) -> torch.Tensor:
    """Random codes under exponents of float16; every exponent occurs."""
    codes = torch.randint(0, 256, (rows, blocks, 17), generator=torch.Generator().manual_seed(rows), dtype=torch.uint8)
    codes[..., 0] = (LOWEST + torch.arange(rows * blocks) % (HIGHEST - LOWEST + 1)).view(rows, blocks).to(torch.uint8)
    return codes.flatten(1)


@pytest.mark.parametrize("rows, blocks", [(1, 1), (7, 3), (3, 50), (2, PIECE // 2 + 1)])
def test_every_value_is_kept(rows, blocks):
    codes = draw_blocks(rows, blocks)
    kept = as_q5_0(codes)

    assert is_exact(codes)
    assert kept.shape == (rows, 22 * blocks)
    assert torch.equal(dequantize(kept, "Q5_0"), dequantize(codes, "MXFP4"))


@pytest.mark.parametrize("e", [0, LOWEST - 1, HIGHEST + 1, 255])
@pytest.mark.parametrize("code", [0x01, 0x90])
def test_exponents_beyond_those_of_float16(e, code):
    """One number is enough; zeros of both signs are none."""
    codes = draw_blocks(2, 2)
    codes[1, 17], codes[1, 18:] = e, 0x80

    assert is_exact(codes)
    assert torch.equal(dequantize(as_q5_0(codes), "Q5_0"), dequantize(codes, "MXFP4"))

    codes[1, 20] = code
    assert not is_exact(codes)
