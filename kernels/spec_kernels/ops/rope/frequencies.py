"""Frequencies of the pairs of a head, in radians per position, and their long-context scalings.

D is the number of rotated dimensions of a head; there are D / 2 pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def frequencies(rotated: int, base: float) -> Tensor:
    """float32 [D / 2]: base ** (-2 i / D). Linear scaling divides them by its factor."""
    return 1.0 / base ** (torch.arange(0, rotated, 2, dtype=torch.int64).float() / rotated)


def llama3_factors(rotated: int, base: float, factor: float, low: float, high: float, original: int) -> Tensor:
    """float32 [D / 2] that the frequencies are divided by (GGUF stores them as ``rope_freqs.weight``).

    Pairs that turn more than ``high`` times in the original context stay, those below ``low`` turns are slowed down by
    ``factor``, and between them the slowing is interpolated.
    """
    turns = original * frequencies(rotated, base) / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return 1.0 / ((1 - smooth) / factor + smooth)


def yarn(
    plain: Tensor, base: float, factor: float, original: int, fast: float = 32.0, slow: float = 1.0, whole: bool = True
) -> Tensor:
    """YaRN's frequencies: slow pairs interpolated by ``factor``, fast ones kept, a ramp between (Peng 2309.00071).

    plain: float32 [D / 2]    fast, slow: turns within ``original`` positions at the ends of the ramp
    whole: whether the ends of the ramp are rounded to whole pairs
    """
    count = 2 * len(plain)
    low, high = (count * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, count - 1)
    ramp = (torch.arange(len(plain), dtype=torch.float32) - low) / max(high - low, 1e-3)
    slowed = ramp.clamp(0, 1)
    return plain / factor * slowed + plain * (1 - slowed)
