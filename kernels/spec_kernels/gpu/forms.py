"""Layout of quantised blocks on the device. Needs no triton.

integers      uint8 [n, k] of Q8_0, plus 128; of others the low four bits, uint8 [n, 32 a run of 64]: byte j of a
              run holds weights j and j + 32, the last run may be half empty
high bits     uint8 [n, 8 · bits a run]: the lower half of byte j holds those of weights j, j + 8 · bits, ... below 32,
              the upper half those of the weights 32 further on
scales        [k / each, n], of dtypes as in ``SCALES``
super-scales  [k / 256, n] of K types
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Scales = Literal["half", "halves", "bytes", "signed", "exponent"]
SCALES: dict[Scales, tuple[torch.dtype, torch.dtype | None]] = {
    "half": (torch.float16, None),
    "halves": (torch.int32, None),
    "bytes": (torch.int16, torch.int32),
    "signed": (torch.int8, torch.float16),
    "exponent": (torch.uint8, None),
}
"""Dtypes of scales and of super-scales.

halves: a scale, and a minimum in the upper half. bytes: likewise, multiplied by the halves of a super-scale. signed:
multiplied by it. exponent: of two, plus 128.
"""


@dataclass(frozen=True)
class Form:
    """Constants of a type. A weight is scale · (integer - offset), plus or minus a minimum.

    bits: of an integer beyond the lowest four. each: weights of a scale.
    """

    type: str
    scales: Scales = "half"
    bits: int = 0
    offset: int = 0
    each: int = 32

    @property
    def blocks(self) -> bool:
        """Whether a matrix is in blocks, and not in floats."""
        return self.type != "floats"

    @property
    def nibbles(self) -> bool:
        """Whether integers lie in bytes of two."""
        return self.type != "Q8_0"

    def bytes_of(self, n: int, k: int) -> int:
        """Bytes of a matrix in blocks."""
        scale, top = SCALES[self.scales]
        integers = -(-k // 64) * (32 + 8 * self.bits) if self.nibbles else k
        return n * (integers + k // self.each * scale.itemsize + (k // 256 * top.itemsize if top else 0))


FLOATS = Form("floats")
FORMS = {
    form.type: form
    for form in (
        Form("Q8_0", offset=128), Form("Q4_0", offset=8), Form("Q4_1", "halves"), Form("Q5_0", bits=1, offset=16),
        Form("Q5_1", "halves", bits=1), Form("Q4_K", "bytes"), Form("Q5_K", "bytes", bits=1),
        Form("Q6_K", "signed", bits=2, offset=32, each=16), Form("MXFP4", "exponent"),
    )
}  # fmt: skip
"""Types that are multiplied from their blocks, by GGUF's names."""
