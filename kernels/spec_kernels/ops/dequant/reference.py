"""Every block format as a function of its bytes: uint8 [n, bytes] -> float32 [n, elements].

The order of the float32 products is part of the format: results equal ggml's to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spec_kernels.ops.dequant.bits import (
    fields,
    five_bits,
    half_floats,
    halves,
    lookup_values,
    numbers,
    pairs,
    scales_and_mins,
    six_bits,
)

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""The E2M1 values doubled, so that they are integers."""


class QuantType(NamedTuple):
    """elements and bytes of a block, and how its bytes become numbers."""

    elements: int
    bytes: int
    blocks: Callable[[Tensor], Tensor]

    def row_bytes(self, length: int) -> int:
        """Bytes of a row of ``length`` elements. Raises ValueError where blocks do not fit."""
        if length % self.elements:
            raise ValueError(f"a row of {length} elements does not divide into blocks of {self.elements}")
        return length // self.elements * self.bytes


def dequantize(data: Tensor, type: str) -> Tensor:
    """Rows of quantised blocks as numbers.

    data: uint8 [..., row_bytes]. type: as GGUF names it, such as ``"Q4_K"``.
    returns float32 [..., elements].
    Raises ValueError for a type without a reference here, TypeError for data that are no bytes.
    """
    if type not in TYPES:
        raise ValueError(f"quantisation type {type} is not supported; supported are {', '.join(TYPES)}")
    if data.dtype != torch.uint8:
        raise TypeError(f"quantised data must be uint8, got {data.dtype}")
    kind = TYPES[type]
    if data.shape[-1] % kind.bytes:
        raise ValueError(f"a row of {data.shape[-1]} bytes does not divide into {type} blocks of {kind.bytes}")
    rows = kind.blocks(data.reshape(-1, kind.bytes))
    return rows.reshape(*data.shape[:-1], data.shape[-1] // kind.bytes * kind.elements)


def _plain(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda b: numbers(b, dtype)


def _q8_0(b: Tensor) -> Tensor:
    return half_floats(b[:, :2]) * numbers(b[:, 2:], torch.int8)


def _q4_0(b: Tensor) -> Tensor:
    return half_floats(b[:, :2]) * (halves(b[:, 2:]).float() - 8)


def _q4_1(b: Tensor) -> Tensor:
    return half_floats(b[:, :2]) * halves(b[:, 4:]).float() + half_floats(b[:, 2:4])


def _q5_0(b: Tensor) -> Tensor:
    return half_floats(b[:, :2]) * (five_bits(b[:, 6:], b[:, 2:6]).float() - 16)


def _q5_1(b: Tensor) -> Tensor:
    return half_floats(b[:, :2]) * five_bits(b[:, 8:], b[:, 4:8]).float() + half_floats(b[:, 2:4])


def _scale_and_shift(b: Tensor, q: Tensor) -> Tensor:
    """d * scale * q - dmin * min of Q4_K and Q5_K; q [n, 8, 32]."""
    scales, mins = scales_and_mins(b[:, 4:16])
    scale = half_floats(b[:, :2]) * scales.float()
    minimum = half_floats(b[:, 2:4]) * mins.float()
    return (scale[..., None] * q.float() - minimum[..., None]).flatten(1)


def _q4_k(b: Tensor) -> Tensor:
    return _scale_and_shift(b, pairs(b[:, 16:]))


def _q5_k(b: Tensor) -> Tensor:
    return _scale_and_shift(b, pairs(b[:, 48:]) | (fields(b[:, 16:48], 1) << 4))


def _q6_k(b: Tensor) -> Tensor:
    scale = half_floats(b[:, 208:]) * numbers(b[:, 192:208], torch.int8)
    return (scale[..., None] * (six_bits(b[:, :128], b[:, 128:192]).float() - 32)).flatten(1)


def _q3_k(b: Tensor) -> Tensor:
    low = fields(b[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16).float()
    third = fields(b[:, :32], 1).reshape(-1, 16, 16).float()
    s = b[:, 96:108]
    scales = halves(s[:, :8]) | (fields(s[:, 8:], 2).flatten(1) << 4)
    scale = half_floats(b[:, 108:]) * (scales.float() - 32)
    # The third bit is stored inverted: where it is missing, 4 is taken away.
    return (scale[..., None] * (low - 4 * (1 - third))).flatten(1)


def _q2_k(b: Tensor) -> Tensor:
    q = fields(b[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16).float()
    scale = half_floats(b[:, 80:82]) * (b[:, :16] & 15).float()
    minimum = half_floats(b[:, 82:]) * (b[:, :16] >> 4).float()
    return (scale[..., None] * q - minimum[..., None]).flatten(1)


def _iq4_nl(b: Tensor) -> Tensor:
    return half_floats(b[:, :2]) * lookup_values(IQ4, halves(b[:, 2:]))


def _iq4_xs(b: Tensor) -> Tensor:
    low = fields(b[:, 4:8], 4).transpose(1, 2).flatten(1)
    high = fields(b[:, 2:4], 2).transpose(1, 2).flatten(1)
    scale = half_floats(b[:, :2]) * ((low | (high << 4)).float() - 32)
    return (scale[..., None] * lookup_values(IQ4, halves(b[:, 8:].reshape(-1, 8, 16)))).flatten(1)


def _mxfp4(b: Tensor) -> Tensor:
    # float64, because the smallest scales are subnormal in float32.
    scale = torch.exp2(b[:, :1].double() - 128).float()
    return scale * lookup_values(FP4, halves(b[:, 1:]))


def _nvfp4(b: Tensor) -> Tensor:
    scale = _ue4m3(b[:, :4]) * 0.5
    return (scale[..., None] * lookup_values(FP4, halves(b[:, 4:].reshape(-1, 4, 8)))).flatten(1)


def _ue4m3(b: Tensor) -> Tensor:
    """Unsigned 4-bit exponent (bias 7), 3-bit mantissa; 0 and 0x7F are 0."""
    exponent, mantissa = (b >> 3).int() & 15, (b & 7).float()
    number = torch.where(exponent == 0, torch.ldexp(mantissa, exponent - 9), torch.ldexp(mantissa + 8, exponent - 10))
    return torch.where((b == 0) | (b == 0x7F), 0.0, number)


TYPES: dict[str, QuantType] = {
    "F32": QuantType(1, 4, _plain(torch.float32)),
    "F16": QuantType(1, 2, _plain(torch.float16)),
    "BF16": QuantType(1, 2, _plain(torch.bfloat16)),
    "Q8_0": QuantType(32, 34, _q8_0),
    "Q4_0": QuantType(32, 18, _q4_0),
    "Q4_1": QuantType(32, 20, _q4_1),
    "Q5_0": QuantType(32, 22, _q5_0),
    "Q5_1": QuantType(32, 24, _q5_1),
    "Q2_K": QuantType(256, 84, _q2_k),
    "Q3_K": QuantType(256, 110, _q3_k),
    "Q4_K": QuantType(256, 144, _q4_k),
    "Q5_K": QuantType(256, 176, _q5_k),
    "Q6_K": QuantType(256, 210, _q6_k),
    "IQ4_NL": QuantType(32, 18, _iq4_nl),
    "IQ4_XS": QuantType(256, 136, _iq4_xs),
    "MXFP4": QuantType(32, 17, _mxfp4),
    "NVFP4": QuantType(64, 36, _nvfp4),
}
