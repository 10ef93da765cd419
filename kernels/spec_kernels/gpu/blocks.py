"""Tiles of a matrix in any form, for kernels: ``add_product`` is shared by all products.

Integers become floats by their bits: an integer in the low bits of 2^23 is a sum, and a subtraction leaves the integer.
A weight in float32 is exact: products of scales and integers have at most 24 bits, so that only the subtraction of a
minimum rounds, as in ggml, with or without a fused multiply-add.
"""

from __future__ import annotations

import triton.language as tl

from spec_kernels.gpu.launch import device_function, prefetch

EARLY = tl.constexpr(2)
"""Tiles of floats that are read into the cache before the wait for the previous kernel; of blocks it is one."""
LINE_BYTES = tl.constexpr(128)
"""Of the second-level cache."""
FP4 = tl.constexpr(0xC8643210 - (1 << 32))
"""Magnitudes of E2M1 codes, doubled, four bits each."""


@device_function
def spread(m, OUTPUTS: tl.constexpr, COUNT: tl.constexpr, EACH: tl.constexpr):
    """[OUTPUTS, COUNT] -> [OUTPUTS, COUNT · EACH], every number repeated."""
    return tl.reshape(tl.broadcast_to(m[:, :, None], [OUTPUTS, COUNT, EACH]), [OUTPUTS, COUNT * EACH])


@device_function
def read_half(pair, UPPER: tl.constexpr):
    """A float16 of the two in an int32, as float32."""
    bits = pair >> 16 if UPPER else pair
    return (bits & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@device_function
def read_scales(memory, block, output, real, stride, FORM: tl.constexpr, EXACT: tl.constexpr):
    """Scales and minimums, float32; of blocks or outputs that are not real they are 0."""
    at = block.to(tl.int64) * stride + output
    raw = tl.load(memory.scales + at) if EXACT else tl.load(memory.scales + at, real, other=0)
    if FORM.scales == "half":
        scale = raw.to(tl.float32)
        minimum = scale
    elif FORM.scales == "halves":
        scale = read_half(raw, False)
        minimum = -read_half(raw, True)
    elif FORM.scales == "exponent":
        power = raw.to(tl.int32)
        bits = tl.where(power < 2, 0x200000 << power, (power - 1) << 23)  # below 2 it is subnormal
        scale = tl.where(real, bits.to(tl.float32, bitcast=True), 0.0)
        minimum = scale
    else:
        top_at = memory.tops + (block // (256 // FORM.each)).to(tl.int64) * stride + output
        top = tl.load(top_at) if EXACT else tl.load(top_at, real, other=0)
        if FORM.scales == "signed":
            scale = top.to(tl.float32) * raw.to(tl.float32)
            minimum = scale
        else:
            pair = raw.to(tl.int32)
            scale = read_half(top, False) * (pair & 255).to(tl.float32)
            minimum = read_half(top, True) * (pair >> 8).to(tl.float32)
    return scale, minimum


@device_function
def scale_integers(q, scale, minimum, FORM: tl.constexpr):
    """float32 weights of integers, which are int32."""
    if FORM.scales == "exponent":
        size = (FP4 >> ((q & 7) * 4)) & 15
        q = tl.where(q > 7, -size, size)
    if FORM.scales == "exponent" or not FORM.nibbles:
        number = (q + 0x4B000080).to(tl.float32, bitcast=True) - 8388736.0
    else:
        number = (q | 0x4B000000).to(tl.float32, bitcast=True) - (8388608.0 + FORM.offset)
    weight = scale * number
    if FORM.scales == "halves" or FORM.scales == "bytes":
        weight = weight - minimum
    return weight


@device_function
def read_integers(memory, first, output, real, end, k, FORM: tl.constexpr, INPUTS: tl.constexpr, EXACT: tl.constexpr):
    """int32 of the first and of the second 32 columns of every 64, each [OUTPUTS, INPUTS / 2]."""
    byte = tl.arange(0, INPUTS // 2)[None, :]
    place = first + byte // 32 * 64 + byte % 32
    runs = (k + 63) // 64
    if FORM.nibbles:
        at = memory.numbers + output * (runs * 32) + (first // 2 + byte)
        both = tl.load(at) if EXACT else tl.load(at, real & (place < end), other=0)
        low, high = (both & 15).to(tl.int32), (both >> 4).to(tl.int32)
        if FORM.bits:
            WIDTH: tl.constexpr = 8 * FORM.bits
            bits_at = memory.high + output * (runs * WIDTH) + (first // 64 + byte // 32) * WIDTH + byte % WIDTH
            more = tl.load(bits_at) if EXACT else tl.load(bits_at, real & (place < end), other=0)
            bits = more.to(tl.int32) >> (byte % 32 // WIDTH * (2 * FORM.bits))
            low = low | (bits & (1 << FORM.bits) - 1) << 4
            high = high | (bits >> FORM.bits & (1 << FORM.bits) - 1) << 4
    else:
        at = memory.numbers + output * k + place
        low = (tl.load(at) if EXACT else tl.load(at, real & (place < end), other=0)).to(tl.int32)
        high = (tl.load(at + 32) if EXACT else tl.load(at + 32, real & (place + 32 < end), other=0)).to(tl.int32)
    return low, high


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
    low, high = read_integers(memory, first, output, real, end, k, FORM, INPUTS, EXACT)
    count = tl.arange(0, COUNT)[None, :]
    block = first // EACH + count // NEXT * (2 * NEXT) + count % NEXT
    scale, minimum = read_scales(memory, block, output, real & (block * EACH < end), stride, FORM, EXACT)
    s, m = spread(scale, OUTPUTS, COUNT, EACH), spread(minimum, OUTPUTS, COUNT, EACH)
    low_weights = scale_integers(low, s, m, FORM)
    block += NEXT
    scale, minimum = read_scales(memory, block, output, real & (block * EACH < end), stride, FORM, EXACT)
    s, m = spread(scale, OUTPUTS, COUNT, EACH), spread(minimum, OUTPUTS, COUNT, EACH)
    return low_weights, scale_integers(high, s, m, FORM)


@device_function
def add_product(
    total, x, memory, first, output, real, end, k, stride, FORM: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """total + W xᵀ over INPUTS columns from ``first`` on.

    total: float32 [OUTPUTS, HEIGHT]. x: addresses of rows, [1, HEIGHT]. memory: a ``Memory``. output: int64
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
