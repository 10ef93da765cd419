"""Logarithm and exponential with equal bits on every machine; numpy's and C libraries' differ.

float64 throughout; every line is one IEEE operation, or exact, and the native form does the same operations in the
same order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

SERIES = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
"""log(1 + f) = f - f^2/2 + s (f^2/2 + R), s = f / (2 + f), R = s^2 (SERIES of s^2): as in fdlibm (Sun, 1993)."""
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts: the first has so few bits that its product with a small integer is exact."""
LOG2_E = 1.4426950408889634
ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)
"""Bits of the square root of 1/2."""
FACTORS = tuple(1 / math.factorial(i) for i in range(13, -1, -1))
"""Taylor series: the error is below 4e-18 for |r| <= ln(2) / 2."""
FLOOR = -64.0
"""Fine weights of values below exp of this are 0."""
LN2_HIGH_SINGLE, LN2_LOW_SINGLE = np.float32(float.fromhex("0x1.62ep-1")), np.float32(float.fromhex("0x1.0bfbe8p-15"))
FACTORS_SINGLE = tuple(np.float32(1) / np.float32(math.factorial(i)) for i in range(7, -1, -1))
"""Taylor series: the error is below 6e-9."""
LIGHT = -40.0
"""Weights of values below exp of this are 0."""
BITS = 30
"""Fraction bits of a weight."""


def natural_log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm, within 1 ulp. x: normal positive float64."""
    bits = x.view(np.int64)
    k = (bits - ROOT_HALF) >> 52
    f = (bits - (k << 52)).view(np.float64) - 1.0
    s = f / (f + 2.0)
    z = s * s
    r = _series(SERIES[::-1], z) * z
    h = f * 0.5 * f
    n = k.astype(np.float64)
    return n * LN2_HIGH - ((h - (s * (h + r) + n * LN2_LOW)) - f)


def weights(z: np.ndarray) -> np.ndarray:
    """exp(z) as integers, int64: multiples of 2**-BITS, rounded down, from float32. z: max 0.

    Sums of integers are exact in any order, and so are the cuts made from them.
    """
    x = np.maximum(z, LIGHT).astype(np.float32)
    k = np.rint(x * np.float32(LOG2_E))
    r = (x - k * LN2_HIGH_SINGLE) - k * LN2_LOW_SINGLE
    p = _series(FACTORS_SINGLE, r)
    return np.ldexp(p, k.astype(np.int32) + BITS).astype(np.int64)


def fine_bits(count: int) -> int:
    """Fraction bits of a fine weight, so that the sum of ``count`` weights fits in 63 bits."""
    return min(50, 62 - count.bit_length())


def fine_weights(z: np.ndarray, bits: int) -> np.ndarray:
    """Weights for reported probabilities: rounded to the nearest multiple of 2**-bits, from float64."""
    z = np.maximum(z, FLOOR)
    k = np.rint(z * LOG2_E)
    r = (z - k * LN2_HIGH) - k * LN2_LOW
    p = _series(FACTORS, r)
    return np.rint(np.ldexp(p, k.astype(np.int32) + bits)).astype(np.int64)


def _series(factors: tuple[Any, ...], x: np.ndarray) -> np.ndarray:
    """Horner's method; the first factor is that of the highest power."""
    sum = np.full_like(x, factors[0])
    for factor in factors[1:]:
        sum = sum * x + factor
    return sum
