"""Tiles of a matrix in any form, for kernels: ``add_product`` is shared by all products.

Integers become floats by their bits: an int32 below 2^23 is the bits of a subnormal float, and a product with a power
of two leaves the integer, or a fraction of it that a scale makes up for. A weight in float32 is exact: products of
scales and integers have at most 24 bits, so that only the subtraction of a minimum rounds, as in ggml, with or without
a fused multiply-add.
"""

from __future__ import annotations

import triton.language as tl

from spec_kernels.gpu.launch import prefetch
from spec_kernels.ops.device_function import device_function

EARLY = tl.constexpr(2)
"""Tiles of floats that are read into the cache before the wait for the previous kernel; of blocks it is one."""
LINE_BYTES = tl.constexpr(128)
"""Bytes of a line of the second-level cache."""
UNIT = tl.constexpr(2.0**23)
"""Numbers are this much smaller, and scales larger, except for codes."""


@device_function
def spread(m, OUTPUTS: tl.constexpr, COUNT: tl.constexpr, EACH: tl.constexpr):
    """[OUTPUTS, COUNT] -> [OUTPUTS, COUNT · EACH], every number repeated."""
    return tl.reshape(tl.broadcast_to(m[:, :, None], [OUTPUTS, COUNT, EACH]), [OUTPUTS, COUNT * EACH])


@device_function
def float_bits(bits, ABOVE: tl.constexpr):
    """float32 of the non-negative integer that lies ABOVE bits above the lowest of an int32, divided by UNIT."""
    return bits.to(tl.float32, bitcast=True) * 2.0 ** (126 - ABOVE)


@device_function
def float_code(byte, ABOVE: tl.constexpr):
    """float32 of an E2M1 code, doubled: its bits are those of an exponent, a mantissa and a sign; 0 has none."""
    bits = byte << (22 - ABOVE) & 0x1C00000 | byte << (28 - ABOVE) & -0x80000000
    return bits.to(tl.float32, bitcast=True) * 2.0**127 + 0.0


@device_function
def float_half(pair, UPPER: tl.constexpr):
    """float32 of one of two float16 in an int32."""
    bits = pair >> 16 if UPPER else pair
    return (bits & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@device_function
def read_scales(memory, block, output, real, stride, FORM: tl.constexpr, EXACT: tl.constexpr):
    """Scales and minimums, float32; of blocks or outputs that are not real they are 0."""
    at = block.to(tl.int64) * stride + output
    raw = tl.load(memory.scales + at) if EXACT else tl.load(memory.scales + at, real, other=0)
    if FORM.scales == "half":
        scale = raw.to(tl.float32) * UNIT
        minimum = scale
    elif FORM.scales == "halves":
        scale = float_half(raw, False) * UNIT
        minimum = -float_half(raw, True)
    elif FORM.scales == "exponent":
        power = raw.to(tl.int32)
        bits = tl.where(power < 2, 0x200000 << power, (power - 1) << 23)  # below 2 it is subnormal
        scale = tl.where(real, bits.to(tl.float32, bitcast=True), 0.0)
        minimum = scale
    else:
        top_at = memory.tops + (block // (256 // FORM.each)).to(tl.int64) * stride + output
        top = tl.load(top_at) if EXACT else tl.load(top_at, real, other=0)
        pair = raw.to(tl.int32)
        if FORM.scales == "signed":
            scale = top.to(tl.float32) * pair.to(tl.float32) * UNIT
            minimum = scale
        else:
            scale = float_half(top, False) * float_bits(pair & 0x3F, 0) * (UNIT * UNIT)
            minimum = float_half(top, True) * float_bits(pair & 0x3F00, 8) * UNIT
    return scale, minimum


@device_function
def read_numbers(memory, first, output, real, end, k, FORM: tl.constexpr, INPUTS: tl.constexpr, EXACT: tl.constexpr):
    """Integers minus the offset, float32, of the first and the second 32 columns of every 64."""
    byte = tl.arange(0, INPUTS // 2)[None, :]
    place, runs = first + byte // 32 * 64 + byte % 32, (k + 63) // 64
    if FORM.nibbles:
        at = memory.numbers + output * (runs * 32) + (first // 2 + byte)
        both = (tl.load(at) if EXACT else tl.load(at, real & (place < end), other=0)).to(tl.int32)
        if FORM.scales == "exponent":
            low, high = float_code(both, 0), float_code(both, 4)
        else:
            low, high = both & 0x0F, both & 0xF0
            if FORM.bits:
                WIDTH: tl.constexpr = 8 * FORM.bits
                MASK: tl.constexpr = (1 << FORM.bits) - 1
                bits_at = memory.high + output * (runs * WIDTH) + (first // 64 + byte // 32) * WIDTH + byte % WIDTH
                bits = tl.load(bits_at) if EXACT else tl.load(bits_at, real & (place < end), other=0)
                bits = bits.to(tl.int32) << (4 - byte % 32 // WIDTH * FORM.bits)
                low, high = low | bits & (MASK << 4), high | bits & (MASK << 8)
            low, high = float_bits(low, 0), float_bits(high, 4)
    else:
        at = memory.numbers + output * k + place
        low = tl.load(at) if EXACT else tl.load(at, real & (place < end), other=0)
        high = tl.load(at + 32) if EXACT else tl.load(at + 32, real & (place + 32 < end), other=0)
        low, high = float_bits(low.to(tl.int32), 0), float_bits(high.to(tl.int32), 0)
    if FORM.offset:
        low, high = low - FORM.offset / UNIT, high - FORM.offset / UNIT
    return low, high


@device_function
def scale_numbers(number, scale, minimum, FORM: tl.constexpr, OUTPUTS: tl.constexpr, COUNT: tl.constexpr):
    """float32 weights [OUTPUTS, COUNT · each]. scale, minimum: [OUTPUTS, COUNT]"""
    weight = spread(scale, OUTPUTS, COUNT, FORM.each) * number
    if FORM.scales == "halves" or FORM.scales == "bytes":
        weight = weight - spread(minimum, OUTPUTS, COUNT, FORM.each)
    return weight


@device_function
def read_halves(
    memory, first, output, real, end, k, stride, FORM: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """float32 weights of the first and of the second 32 columns of every 64, each [OUTPUTS, INPUTS / 2].

    first: a column, a multiple of 64. output: int64 [OUTPUTS, 1], rows of the matrix. real: which of them are.
    """
    EACH: tl.constexpr = FORM.each
    COUNT: tl.constexpr = INPUTS // 2 // EACH
    NEXT: tl.constexpr = 32 // EACH
    low, high = read_numbers(memory, first, output, real, end, k, FORM, INPUTS, EXACT)
    count = tl.arange(0, COUNT)[None, :]
    block = first // EACH + count // NEXT * (2 * NEXT) + count % NEXT
    scale, minimum = read_scales(memory, block, output, real & (block * EACH < end), stride, FORM, EXACT)
    low = scale_numbers(low, scale, minimum, FORM, OUTPUTS, COUNT)
    block += NEXT
    scale, minimum = read_scales(memory, block, output, real & (block * EACH < end), stride, FORM, EXACT)
    return low, scale_numbers(high, scale, minimum, FORM, OUTPUTS, COUNT)


@device_function
def add_product(
    total, x, memory, first, output, real, end, k, stride, FORM: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """total + W xᵀ over INPUTS columns from ``first`` on.

    total: float32 [OUTPUTS, HEIGHT]. x: addresses of rows, [1, HEIGHT]. memory: a ``MatrixTensors``. output: int64
    [OUTPUTS, 1], rows of the matrix. real: bool [OUTPUTS, 1], which of them exist. end: of the columns to be added.
    k, stride: columns and rows of the matrix. EXACT: all outputs and columns of the tile are real.
    """
    if FORM.blocks:
        low, high = read_halves(memory, first, output, real, end, k, stride, FORM, OUTPUTS, INPUTS, EXACT)
        byte = tl.arange(0, INPUTS // 2)[:, None]
        place = first + byte // 32 * 64 + byte % 32
        values = tl.load(x + place) if EXACT else tl.load(x + place, place < end, other=0.0)
        total = tl.dot(low.to(values.dtype), values, total, input_precision=PRECISION)
        values = tl.load(x + place + 32) if EXACT else tl.load(x + place + 32, place + 32 < end, other=0.0)
        total = tl.dot(high.to(values.dtype), values, total, input_precision=PRECISION)
    else:
        column = first + tl.arange(0, INPUTS)
        w_at, x_at = memory.numbers + output * k + column[None, :], x + column[:, None]
        if EXACT:
            w, values = tl.load(w_at), tl.load(x_at)
        else:
            w = tl.load(w_at, real & (column < end)[None, :], other=0.0)
            values = tl.load(x_at, (column < end)[:, None], other=0.0)
        total = tl.dot(w, values, total, input_precision=PRECISION)
    return total


@device_function
def prefetch_tiles(memory, first, output, k, FORM: tl.constexpr, INPUTS: tl.constexpr, DEPENDENT: tl.constexpr):
    """Read the values of the first tiles of a part into the cache. output: int64 [OUTPUTS]"""
    if FORM.blocks:
        LINES: tl.constexpr = INPUTS // 2 // LINE_BYTES if FORM.nibbles else INPUTS // LINE_BYTES
        at = output * ((k + 63) // 64 * 32) + first // 2 if FORM.nibbles else output * k + first
        for line in tl.static_range(LINES):
            prefetch(memory.numbers + at + line * LINE_BYTES, DEPENDENT)
    else:
        LINE: tl.constexpr = LINE_BYTES * 8 // memory.numbers.dtype.element_ty.primitive_bitwidth
        for line in tl.static_range(EARLY * INPUTS // LINE):
            prefetch(memory.numbers + output * k + first + line * LINE, DEPENDENT)
