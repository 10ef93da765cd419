"""Read bandwidth of this machine's memory with torch's threads."""

from __future__ import annotations

from time import perf_counter

import torch

TIMES = 20


def bandwidth(size: int) -> float:
    """Bytes per second of reading a buffer of ``size`` bytes repeatedly, the best of several times.

    A buffer as large as a model's weights is read from the same place as they are: a cache, or memory.
    """
    numbers = torch.ones(max(size // 4, 1024))
    fastest = float("inf")
    for _ in range(TIMES):
        began = perf_counter()
        torch.dot(numbers, numbers)
        fastest = min(fastest, perf_counter() - began)
    return numbers.nbytes / fastest
