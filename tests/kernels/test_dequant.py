"""Dequantised blocks equal ggml's bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from spec_kernels.ops.dequant import TYPES, dequantize

from tests.support.golden import golden

GOLDEN_TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]
BLOCKS = [t for t in TYPES if t != "F32"]


def random_bytes(type: str, rows: int, blocks: int) -> torch.Tensor:
    """Blocks of random bytes, NaN and infinite scales included."""
    return torch.randint(0, 256, (rows, blocks * TYPES[type].bytes), dtype=torch.uint8)


def oracle(data: torch.Tensor, type: str) -> torch.Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(gguf.quants.dequantize(data.numpy(), gguf.GGMLQuantizationType[type]))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bit for bit; all NaN are equal."""
    return torch.equal(a.nan_to_num(1e30), b.nan_to_num(1e30))


def test_golden_holds_no_type_that_is_not_tested_here():
    names = load_file(golden("quant") / "golden.safetensors")

    assert {n.split(".")[1] for n in names if n.endswith(".bytes")} == set(GOLDEN_TYPES)


@pytest.mark.parametrize("type", GOLDEN_TYPES)
def test_dequantised_golden_matrices_are_bit_equal(type):
    tensors = load_file(golden("quant") / "golden.safetensors")
    for name in [n for n in tensors if n.endswith(f".{type}.bytes")]:
        expected = tensors[name.replace("bytes", "dequant")]

        assert torch.equal(expected, dequantize(tensors[name], type)), name


@pytest.mark.parametrize("rows, blocks", [(1, 1), (3, 1), (7, 5)])
@pytest.mark.parametrize("type", BLOCKS)
def test_random_bytes_dequantise_as_gguf_does(type, rows, blocks):
    torch.manual_seed(rows)
    data = random_bytes(type, rows, blocks)

    assert same_bits(oracle(data, type), dequantize(data, type))


def test_scales_at_the_edge_of_mxfp4_are_not_flushed_to_zero():
    """The smallest exponents give subnormal numbers."""
    data = random_bytes("MXFP4", 256, 1)
    data[:, 0] = torch.arange(256)

    assert same_bits(oracle(data, "MXFP4"), dequantize(data, "MXFP4"))


def test_float32_bytes_are_read_back():
    x = torch.randn(5, 7)

    assert torch.equal(x, dequantize(x.view(torch.uint8), "F32"))


def test_stacks_of_experts_keep_their_leading_dimensions():
    data = random_bytes("Q8_0", 6, 2)

    assert dequantize(data.view(2, 3, -1), "Q8_0").shape == (2, 3, 64)


def test_rows_may_start_at_an_odd_byte():
    """A slice of a mapped file is usually not aligned."""
    data = random_bytes("Q4_0", 1, 3)
    shifted = torch.cat([torch.zeros(1, dtype=torch.uint8), data[0]])[1:]

    assert torch.equal(dequantize(data[0], "Q4_0").nan_to_num(), dequantize(shifted, "Q4_0").nan_to_num())


@pytest.mark.parametrize("type", ["IQ2_XXS", "IQ1_S", "TQ1_0", "Q2_0", "nonsense"])
def test_unknown_types_are_refused_by_name(type):
    with pytest.raises(ValueError, match=f"{type} is not supported; supported are F32"):
        dequantize(torch.zeros(1, 66, dtype=torch.uint8), type)


def test_bytes_that_are_no_whole_blocks_are_refused():
    with pytest.raises(ValueError, match="35 bytes does not divide into Q8_0 blocks of 34"):
        dequantize(torch.zeros(1, 35, dtype=torch.uint8), "Q8_0")


def test_data_that_are_no_bytes_are_refused():
    with pytest.raises(TypeError, match="float32"):
        dequantize(torch.zeros(1, 34), "Q8_0")


@pytest.mark.parametrize("type, length, expected", [("Q8_0", 64, 68), ("Q4_K", 512, 288), ("F16", 3, 6)])
def test_row_bytes_follow_from_the_length(type, length, expected):
    assert expected == TYPES[type].row_bytes(length)


def test_rows_that_end_inside_a_block_are_refused():
    with pytest.raises(ValueError, match="48 elements"):
        TYPES["Q8_0"].row_bytes(48)
