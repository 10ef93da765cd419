"""Measures with how many threads a forward of a few rows is fastest, on this machine under its present load."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from spec_kernels.model.executor import Executor

from spec_core.toolkit import use_threads
from spec_targets.runtime.probe import BEFORE, Probe, blocks_of

MAX_BLOCKS = 12
"""Max blocks of a model that are measured, besides the output matrix."""
MAX_BYTES = 1 << 28
"""Max bytes of these blocks."""
ROUNDS = 7
"""Max rounds over all counts."""
SECONDS = 0.1
"""Max seconds after ROUNDS_MIN rounds."""
ROUNDS_MIN = 3
SLOW = 5e-3
"""Seconds of a forward from which on threads that wake up do not count: it is not repeated."""
EQUAL = 1.02
"""Ratio of times below which counts are equal: the smallest count within it of the best is chosen."""

_chosen: dict[int, str] = {}
"""The number of threads of this process: bits depend on it, so later models use the same number."""


def reset_after_fork() -> None:
    """Set torch to one thread in a forked child if a model was loaded before: torch would wait forever for
    threads that a fork does not copy. The native forward starts its own threads again."""
    if _chosen:
        torch.set_num_threads(1)
        _chosen.clear()
        _chosen[1] = "1, after a fork"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_after_fork)


def choose_threads(threads: int, executor: Executor, weight_bytes: int) -> str:
    """Set torch's number of threads and return the reason for it. threads: 0 measures with the first model.
    weight_bytes: of the whole model."""
    if threads:
        use_threads(threads)
        _chosen.clear()
        _chosen[threads] = f"{threads}, as asked"
    now = torch.get_num_threads()
    if now not in _chosen:
        _chosen.clear()
        if now == 1:
            return "1, all that torch has"
        count = len(blocks_of(executor.model)) - 2
        blocks = range(min(count, MAX_BLOCKS, max(1, MAX_BYTES * count // weight_bytes)))
        taken, times = measure_threads(Probe(executor, BEFORE + 1, blocks).one_row, now)
        use_threads(taken)
        timings = ", ".join(f"{n}: {1e3 * seconds:.2f} ms" for n, seconds in times.items())
        _chosen[taken] = f"{taken} of {now}, measured when the first model was loaded ({timings} a row)"
    return _chosen[torch.get_num_threads()]


def measure_threads(forward: Callable[[], object], threads_max: int) -> tuple[int, dict[int, float]]:
    """The number of threads to use, and {number: median seconds of a forward}. The first forward with other threads
    wakes them up, so that a second one is timed if the first one is not slow."""
    times: dict[int, list[float]] = {n: [] for n in counts(threads_max)}
    began = perf_counter()
    for turn in range(ROUNDS):
        if turn >= ROUNDS_MIN and perf_counter() - began > SECONDS:
            break
        for n, seconds in times.items():
            use_threads(n)
            first = _seconds(forward)
            seconds.append(first if first >= SLOW else _seconds(forward))
    medians = {n: statistics.median(seconds) for n, seconds in times.items()}
    return fewest_threads(medians), medians


def _seconds(forward: Callable[[], object]) -> float:
    start = perf_counter()
    forward()
    return perf_counter() - start


def counts(threads_max: int) -> list[int]:
    """1, 2, 4 and so on, and ``threads_max`` itself."""
    return sorted({min(1 << i, threads_max) for i in range(threads_max.bit_length() + 1)})


def fewest_threads(seconds: dict[int, float]) -> int:
    """The smallest number within EQUAL of the best."""
    best = min(seconds.values())
    return min(n for n, taken in seconds.items() if taken <= EQUAL * best)
