"""Layout of quantised blocks on the device. Needs no triton.

Columns are cut into runs of 128, the last one filled up with zeros. All numbers lie in words of 16 bits, so that a
matrix instruction takes its operand as it lies: a word holds columns c, c + 32, ... for 0 <= c < 32.

integers   int16 [n, 32 a run]: the low four bits of columns c, c + 32, c + 64 and c + 96 of a run; of Q8_0 int16
           [n, 64 a run]: the bytes of columns c and c + 32 of each half of a run
high bits  int16 [n, 32 a group of runs]: bits of the same four columns of one run after the other
scales     int64 [runs, n, 1 or 2]: four numbers of 16 bits; with minimums, or two scales for 32 columns, eight
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spec_kernels.gpu.unpacking import column_instructions

RUN = 128
"""Columns that lie together."""
WORDS = 32
"""Words of a run whose columns have four bits each."""
Blocks = Literal["bytes", "nibbles", "codes", "floats"]


@dataclass(frozen=True)
class Form:
    """Constants of a type. A weight is scale · (integer - offset) + minimum.

    blocks: how numbers lie; ``codes`` are numbers of four bits with an exponent. bits: of an integer beyond the lowest
    four. each: weights of a scale. minimums: whether there are any. unit: that stored scales are multiplied with.
    """

    type: str
    kind: Blocks = "nibbles"
    minimums: bool = False
    bits: int = 0
    offset: int = 0
    each: int = 32
    unit: float = 1.0

    @property
    def blocks(self) -> bool:
        """Whether a matrix is in blocks, and not in floats."""
        return self.kind != "floats"

    @property
    def words(self) -> int:
        """Words of a run."""
        return 2 * WORDS if self.kind == "bytes" else WORDS

    @property
    def runs_of_high(self) -> int:
        """Runs whose high bits share a word."""
        return 4 // self.bits if self.bits else 1

    @property
    def scales(self) -> int:
        """Numbers of 64 bits with the scales of a run."""
        return RUN // self.each * (2 if self.minimums else 1) // 4

    @property
    def instructions(self) -> tuple[str, ...]:
        """PTX that unpacks each column of a pair of words, see ``unpacking``."""
        return tuple(column_instructions(self, j) for j in range(2 if self.kind == "bytes" else 4))

    def bytes_of(self, n: int, k: int) -> int:
        """Bytes of a matrix in blocks."""
        runs = -(-k // RUN)
        high = 2 * WORDS * -(-runs // self.runs_of_high) if self.bits else 0
        return n * (runs * (2 * self.words + 8 * self.scales) + high)


FLOATS = Form("floats", "floats")
PRODUCT_UNIT = 2.0**-8
"""Of scales that are products: as float16 they keep 11 bits of weights of 1e-6 to 1e3."""
FORMS = {
    form.type: form
    for form in (
        Form("Q8_0", "bytes"), Form("Q4_0", offset=8), Form("Q4_1", minimums=True), Form("Q5_0", bits=1, offset=16),
        Form("Q5_1", bits=1, minimums=True), Form("Q4_K", minimums=True, unit=PRODUCT_UNIT),
        Form("Q5_K", bits=1, minimums=True, unit=PRODUCT_UNIT),
        Form("Q6_K", bits=2, offset=32, each=16, unit=PRODUCT_UNIT), Form("MXFP4", "codes"),
    )
}  # fmt: skip
"""Types that are multiplied from their blocks, by GGUF's names."""
