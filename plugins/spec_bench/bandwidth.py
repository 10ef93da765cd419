"""How fast this machine reads memory with the threads that torch has."""

from __future__ import annotations

from time import perf_counter

import torch

TIMES = 20


def bandwidth(size: int) -> float:
    """Bytes per second of reading a buffer of ``size`` bytes again and again, the best of several times.

    A buffer as large as a model's weights is read from where those are read: a cache, or memory.
    """
    numbers = torch.ones(max(size // 4, 1024))
    least = float("inf")
    for _ in range(TIMES):
        began = perf_counter()
        torch.dot(numbers, numbers)
        least = min(least, perf_counter() - began)
    return numbers.nbytes / least
