"""PTX instructions that turn words of a matrix into operands of a product in bfloat16, without conversions.

Two words lie in a register. Bits of a column are put below the exponent of 128, which makes 128 + q; a multiply-add
subtracts what is too much. Registers: the result, the words, their high bits, and twice the place of these.
"""

from __future__ import annotations

from typing import Protocol

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


class Numbers(Protocol):
    """The part of a ``Form`` that says how numbers lie."""

    @property
    def kind(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def offset(self) -> int: ...


def column_instructions(numbers: Numbers, j: int) -> str:
    """The operand of the j-th columns of a pair of words: of numbers without an offset 128 + q, else q - offset."""
    lines = {"bytes": byte_lines, "codes": code_lines, "nibbles": nibble_lines}[numbers.kind](numbers, j)
    return "{ " + " ".join(lines) + " }"


def nibble_lines(numbers: Numbers, j: int) -> list[str]:
    mask = (1 << numbers.bits) - 1
    lines = [".reg .b32 t, h, one, less;", f"shr.u32 t, $1, {4 * j};" if j else "mov.b32 t, $1;"]
    lines.append(f"lop3.b32 $0, t, 0x000F000F, {BIAS:#x}, {AND_OR:#x};")
    if numbers.bits:
        up = 4 - numbers.bits * j
        lines += ["shr.u32 h, $2, $3;", f"shl.b32 t, h, {up};" if up >= 0 else f"shr.u32 t, h, {-up};"]
        lines.append(f"lop3.b32 $0, t, {mask << 20 | mask << 4:#x}, $0, {AND_OR:#x};")
    if numbers.offset:
        lines += [f"mov.b32 one, {ONE:#x};", f"mov.b32 less, {pair_of(-128 - numbers.offset):#x};"]
        lines.append("fma.rn.bf16x2 $0, $0, one, less;")
    return lines


def byte_lines(numbers: Numbers, j: int) -> list[str]:
    """128 and the low seven bits, minus 128, or minus 256 if the sign is set."""
    return [
        ".reg .b32 t, a, s, minus;", f"mov.b32 minus, {MINUS_ONE:#x};",
        f"shr.u32 t, $1, {8 * j};" if j else "mov.b32 t, $1;",
        f"lop3.b32 a, t, 0x007F007F, {BIAS:#x}, {AND_OR:#x};",
        f"lop3.b32 s, t, 0x00800080, {BIAS:#x}, {AND_OR:#x};",
        "fma.rn.bf16x2 $0, s, minus, a;",
    ]  # fmt: skip


def code_lines(numbers: Numbers, j: int) -> list[str]:
    """E2M1 codes, doubled: exponent and mantissa of a subnormal, times 2 ** 127. Adding -0 keeps the sign of a zero."""
    up = 6 - 4 * j
    return [
        ".reg .b32 t, s, top, none;", f"mov.b32 top, {TOP:#x};", f"mov.b32 none, {MINUS_ZERO:#x};",
        f"shl.b32 t, $1, {up};" if up >= 0 else f"shr.u32 t, $1, {-up};", "and.b32 t, t, 0x01C001C0;",
        f"shl.b32 s, $1, {12 - 4 * j};", f"lop3.b32 t, s, 0x80008000, t, {AND_OR:#x};",
        "fma.rn.bf16x2 $0, t, top, none;",
    ]  # fmt: skip


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
