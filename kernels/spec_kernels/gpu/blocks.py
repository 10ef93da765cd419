"""Tiles of a matrix in any form, for kernels: ``add_product`` is shared by all products.

A matrix in blocks is multiplied by its integers, which are exact in every type, and the float32 sum of a block is
multiplied by the block's scale. A minimum is multiplied by the sum of the row's numbers in the block, which is a
product with ones. So no weight is rounded; the scales of K types are, once, to float16.
"""

from __future__ import annotations

import triton.language as tl

from spec_kernels.gpu.forms import RUN, WORDS
from spec_kernels.gpu.launch import prefetch
from spec_kernels.gpu.unpacking import SCALES, WIDE_SCALES
from spec_kernels.ops.device_function import INTERPRETED, device_function

_constant = (lambda value: value) if INTERPRETED else tl.constexpr
EARLY = _constant(2)
"""Tiles of floats that are read into the cache before the wait for the previous kernel; of blocks it is one."""
LINE_BYTES = _constant(128)
"""Bytes of a line of the second-level cache."""
BIAS = _constant(128.0)
"""Is added to the integers of a type with minimums, in bfloat16: the product with ones makes up for it."""
_COMPILED, _RUN, _WORDS = map(_constant, (not INTERPRETED, RUN, WORDS))
_SCALES, _WIDE_SCALES = map(_constant, (SCALES, WIDE_SCALES))


@device_function
def read_words(at, exists, EXACT: tl.constexpr):
    return tl.load(at) if EXACT else tl.load(at, exists, other=0)


@device_function
def code_number(code):
    """float32 of an E2M1 code, doubled."""
    bits = (code & 7) << 22 | (code & 8) << 28
    return bits.to(tl.float32, bitcast=True) * 2.0**127


@device_function
def integer(words, high, place, J: tl.constexpr, FORM: tl.constexpr, DTYPE: tl.constexpr):
    """Integers, minus the offset, of the J-th columns of words."""
    if FORM.kind == "bytes":
        number = (words << (24 - 8 * J)) >> 24
    elif FORM.kind == "codes":
        number = code_number((words >> (4 * J)) & 15)
    else:
        number = (words >> (4 * J)) & 15
        if FORM.bits:
            number = number | ((high >> (place + FORM.bits * J)) & ((1 << FORM.bits) - 1)) << 4
        number = number - FORM.offset
    return number.to(DTYPE)


@device_function
def operand(words, high, place, J: tl.constexpr, FORM: tl.constexpr, DTYPE: tl.constexpr):
    """Numbers of the J-th columns of words, for a product; in bfloat16 with BIAS where there are minimums.

    words, high: int16. place: int32, of the first high bit of the run.
    """
    if not _COMPILED or tl.bfloat16 != DTYPE:
        numbers = integer(words.to(tl.int32), high.to(tl.int32), place, J, FORM, DTYPE)
    elif FORM.bits:
        shifts = tl.zeros(words.shape, tl.int32) + place
        numbers = tl.inline_asm_elementwise(
            FORM.instructions[J], "=r,r,r,r,r", [words, high, shifts], tl.bfloat16, True, 2
        )
    else:
        numbers = tl.inline_asm_elementwise(FORM.instructions[J], "=r,r", [words], tl.bfloat16, True, 2)
    return numbers


@device_function
def scale_number(bits, J: tl.constexpr, FORM: tl.constexpr):
    """float32 of the J-th of four scales in an int64."""
    part = (bits >> (16 * J)) & 0xFFFF
    if FORM.kind == "codes":
        number = (part << 16).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        number = part.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return number


@device_function
def unpack_scales(bits, FORM: tl.constexpr):
    """float32 of four scales in an int64."""
    if not _COMPILED:
        numbers = (
            scale_number(bits, 0, FORM), scale_number(bits, 1, FORM), scale_number(bits, 2, FORM),
            scale_number(bits, 3, FORM),
        )  # fmt: skip
    elif FORM.kind == "codes":
        numbers = tl.inline_asm_elementwise(_WIDE_SCALES, "=f,=f,=f,=f,l", [bits], (tl.float32,) * 4, True, 1)
    else:
        numbers = tl.inline_asm_elementwise(_SCALES, "=f,=f,=f,=f,l", [bits], (tl.float32,) * 4, True, 1)
    return numbers


@device_function
def read_scale(scales_at, exists, BLOCK: tl.constexpr, FORM: tl.constexpr, EXACT: tl.constexpr):
    """float32: the scale and the minimum of a block of a run, or twice the scale."""
    AT: tl.constexpr = BLOCK * (2 if FORM.minimums else 1)
    four = unpack_scales(read_words(scales_at + AT // 4, exists, EXACT), FORM)
    return four[AT % 4], four[AT % 4 + (1 if FORM.minimums else 0)]


@device_function
def read_weights(memory, column, row, k, stride, FORM: tl.constexpr):
    """float32 weights of some columns of one row; columns from k on are read as 0. row: int64"""
    run, j, real = column // _RUN, column % _RUN // 32, column < k
    runs = (k + _RUN - 1) // _RUN
    if FORM.kind == "bytes":
        at = memory.numbers + row * (runs * 2 * _WORDS) + run * 2 * _WORDS + j // 2 * 32 + column % 32
        word = tl.load(at, real, other=0).to(tl.int32)
        number = ((word << (24 - 8 * (j % 2))) >> 24).to(tl.float32)
    else:
        word = tl.load(memory.numbers + row * (runs * _WORDS) + run * _WORDS + column % 32, real, other=0)
        code = (word.to(tl.int32) >> (4 * j)) & 15
        if FORM.kind == "codes":
            number = code_number(code)
        else:
            if FORM.bits:
                R: tl.constexpr = FORM.runs_of_high
                groups = (runs + R - 1) // R
                high = tl.load(memory.high + row * (groups * _WORDS) + run // R * _WORDS + column % 32, real, other=0)
                place = run % R * (4 * FORM.bits) + j * FORM.bits
                code = code | ((high.to(tl.int32) >> place) & ((1 << FORM.bits) - 1)) << 4
            number = (code - FORM.offset).to(tl.float32)
    block = column % _RUN // FORM.each * (2 if FORM.minimums else 1)
    at = memory.scales + (run * stride + row) * FORM.scales + block // 4
    bits = tl.load(at, real, other=0) >> (16 * (block % 4))
    value = number * (scale_number(bits, 0, FORM) * FORM.unit)
    if FORM.minimums:
        value += scale_number(bits, 1, FORM) * FORM.unit
    return value


@device_function
def add_run(
    total, x, memory, first, output, real, end, runs, stride, FORM: tl.constexpr, EXACT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """total + W xᵀ over the columns of a run, without the unit of scales. first: its first column."""
    DTYPE: tl.constexpr = x.dtype.element_ty
    WIDTH: tl.constexpr = 16 if FORM.each == 16 else 32
    run, column, exists = first // _RUN, tl.arange(0, WIDTH), real & (first < end)
    words_at = memory.numbers + output * (runs * FORM.words) + run * FORM.words + column[None, :]
    scales_at = memory.scales + (run * stride + output) * FORM.scales
    high, place = tl.zeros([1, 1], tl.int16), 0
    if FORM.bits:
        R: tl.constexpr = FORM.runs_of_high
        place = run % R * (4 * FORM.bits)
        high_at = memory.high + output * ((runs + R - 1) // R * _WORDS) + run // R * _WORDS + column[None, :]
    if FORM.minimums:
        bias: tl.constexpr = BIAS if _COMPILED and tl.bfloat16 == DTYPE else 0.0
        ones = tl.full([total.shape[0], WIDTH], 1.0, DTYPE)
    for part in tl.static_range(FORM.words // WIDTH):  # halves of a run
        if FORM.bits:
            high = read_words(high_at + part * WIDTH, exists, EXACT)
        words = read_words(words_at + part * WIDTH, exists, EXACT)
        for j in tl.static_range(2 if FORM.kind == "bytes" else 4):
            at = first + part * (64 if FORM.kind == "bytes" else WIDTH) + j * 32 + column[:, None]
            values = tl.load(x + at) if EXACT else tl.load(x + at, at < end, other=0.0)
            scale, minimum = read_scale(
                scales_at, exists, part * (2 if FORM.kind == "bytes" else 1) + j * (32 // WIDTH), FORM, EXACT
            )
            numbers = operand(words, high, place, j, FORM, DTYPE)
            total += scale * tl.dot(numbers, values, input_precision=PRECISION)
            if FORM.minimums:
                total += (minimum - bias * scale) * tl.dot(ones, values, input_precision=PRECISION)
    return total


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
        for run in tl.static_range(INPUTS // _RUN):
            total = add_run(
                total, x, memory, first + run * _RUN, output, real, end, (k + _RUN - 1) // _RUN, stride, FORM, EXACT,
                PRECISION,
            )  # fmt: skip
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
        WORDS_OF_LINE: tl.constexpr = LINE_BYTES // 2
        at = output * (k // _RUN * FORM.words) + first // _RUN * FORM.words
        for line in tl.static_range((INPUTS // _RUN * FORM.words + WORDS_OF_LINE - 1) // WORDS_OF_LINE):
            prefetch(memory.numbers + at + line * WORDS_OF_LINE, DEPENDENT)
    else:
        LINE: tl.constexpr = LINE_BYTES * 8 // memory.numbers.dtype.element_ty.primitive_bitwidth
        for line in tl.static_range(EARLY * INPUTS // LINE):
            prefetch(memory.numbers + output * k + first + line * LINE, DEPENDENT)
