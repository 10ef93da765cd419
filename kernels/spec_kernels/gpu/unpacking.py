"""PTX instructions that turn words of a matrix into operands of a product in bfloat16, without conversions.

Two words lie in a register. Bits of a column are put below the exponent of 128, which makes 128 + q; a multiply-add
subtracts what is too much. Registers: results first, then the words, their high bits, and twice the place of these.
"""

from __future__ import annotations

import functools

ONE, MINUS_ONE, MINUS_ZERO, TOP = 0x3F803F80, 0xBF80BF80, 0x80008000, 0x7F007F00
"""Pairs of bfloat16; the last is 2 ** 127, by which a subnormal code becomes twice its number."""
BIAS = 0x43004300
"""A pair of 128."""
AND_OR = 0xEA
"""a & b | c, as ``lop3`` takes it."""


def pair_of(number: float) -> int:
    """A pair of a small negative integer as bfloat16."""
    exponent = int(-number).bit_length() - 1
    bits = 0x8000 | (127 + exponent) << 7 | (int(-number) << 7 >> exponent) & 0x7F
    return bits << 16 | bits


@functools.cache
def nibble_instructions(bits: int, offset: int) -> str:
    """Four operands of a pair of words: 128 + q without an offset, else q - offset."""
    mask = (1 << bits) - 1
    lines = [".reg .b32 t, h, one, less;", f"mov.b32 one, {ONE:#x};", f"mov.b32 less, {pair_of(-128 - offset):#x};"]
    lines += ["shr.u32 h, $5, $6;"] if bits else []
    for j in range(4):
        lines += [f"shr.u32 t, $4, {4 * j};"] if j else ["mov.b32 t, $4;"]
        lines.append(f"lop3.b32 ${j}, t, 0x000F000F, {BIAS:#x}, {AND_OR:#x};")
        if bits:
            up = 4 - bits * j
            lines.append(f"shl.b32 t, h, {up};" if up >= 0 else f"shr.u32 t, h, {-up};")
            lines.append(f"lop3.b32 ${j}, t, {mask << 20 | mask << 4:#x}, ${j}, {AND_OR:#x};")
        if offset:
            lines.append(f"fma.rn.bf16x2 ${j}, ${j}, one, less;")
    return "{ " + " ".join(lines) + " }"


@functools.cache
def byte_instructions() -> str:
    """Two operands of a pair of words: 128 and the low seven bits, minus 128, or minus 256 if the sign is set."""
    lines = [".reg .b32 t, a, s, m;", f"mov.b32 m, {MINUS_ONE:#x};"]
    for j in range(2):
        lines += [f"shr.u32 t, $2, {8 * j};"] if j else ["mov.b32 t, $2;"]
        lines.append(f"lop3.b32 a, t, 0x007F007F, {BIAS:#x}, {AND_OR:#x};")
        lines.append(f"lop3.b32 s, t, 0x00800080, {BIAS:#x}, {AND_OR:#x};")
        lines.append(f"fma.rn.bf16x2 ${j}, s, m, a;")
    return "{ " + " ".join(lines) + " }"


@functools.cache
def code_instructions() -> str:
    """Four operands of a pair of words with E2M1 codes, doubled: exponent and mantissa of a subnormal, times 2 ** 127.

    The sum with -0 keeps the sign of a zero.
    """
    lines = [".reg .b32 t, s, top, none;", f"mov.b32 top, {TOP:#x};", f"mov.b32 none, {MINUS_ZERO:#x};"]
    for j in range(4):
        up = 6 - 4 * j
        lines.append(f"shl.b32 t, $4, {up};" if up >= 0 else f"shr.u32 t, $4, {-up};")
        lines.append("and.b32 t, t, 0x01C001C0;")
        lines.append(f"shl.b32 s, $4, {12 - 4 * j};")
        lines.append(f"lop3.b32 t, s, 0x80008000, t, {AND_OR:#x};")
        lines.append(f"fma.rn.bf16x2 ${j}, t, top, none;")
    return "{ " + " ".join(lines) + " }"


SCALES = (
    "{ .reg .b16 a, b, c, d; mov.b64 {a, b, c, d}, $4; "
    "cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; cvt.f32.f16 $2, c; cvt.f32.f16 $3, d; }"
)
"""Four float16 -> float32."""
WIDE_SCALES = (
    "{ .reg .b32 a, b; mov.b64 {a, b}, $4; "
    "shl.b32 $0, a, 16; and.b32 $1, a, 0xFFFF0000; shl.b32 $2, b, 16; and.b32 $3, b, 0xFFFF0000; }"
)
"""Four bfloat16 -> float32."""
