"""Random words, logarithm and Gumbel noise in triton, bit for bit the core's.

Every line is one IEEE operation. Kernels that call these are compiled without fused multiply-add.
"""

from __future__ import annotations

import triton.language as tl

from spec_kernels.ops.device_function import device_function


@device_function
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words uint32 of a counter, uint32, under a key: Philox4x32-10."""
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high1, low1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@device_function
def log(x):
    """Natural logarithm of normal positive float64.

    A literal is float32: only numbers that float32 represents exactly stand in an expression.
    """
    bits = x.to(tl.int64, bitcast=True)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = (bits - (k << 52)).to(tl.float64, bitcast=True) - 1.0
    s = f / (f + 2.0)
    z = s * s
    r = z * tl.full((), 1.479819860511658591e-01, tl.float64) + tl.full((), 1.531383769920937332e-01, tl.float64)
    r = r * z + tl.full((), 1.818357216161805012e-01, tl.float64)
    r = r * z + tl.full((), 2.222219843214978396e-01, tl.float64)
    r = r * z + tl.full((), 2.857142874366239149e-01, tl.float64)
    r = r * z + tl.full((), 3.999999999940941908e-01, tl.float64)
    r = r * z + tl.full((), 6.666666666666735130e-01, tl.float64)
    r = r * z
    h = f * 0.5 * f
    n = k.to(tl.float64)
    low = n * tl.full((), 1.90821492927058770002e-10, tl.float64)
    return n * tl.full((), 6.93147180369123816490e-01, tl.float64) - ((h - (s * (h + r) + low)) - f)


@device_function
def gumbel(high, low):
    """Gumbel noise float64 from the two halves, uint32, of a uniform with 52 bits."""
    whole = (high.to(tl.int64) << 20) | (low.to(tl.int64) >> 12)
    return -log(-log((whole.to(tl.float64) + 0.5) * (2.0**-52)))
