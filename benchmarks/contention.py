"""Two threads against one beside busy loops: forwards per second, in many short turns of one process.

    python benchmarks/contention.py [-m MODEL] [--busy 2] [--rows 1 8] [--seconds 20]

A pair is a burst of an eighth of a second with each number of threads, whoever is first alternates. The scheduler
deals in slices of milliseconds, so that a long run of one kind says little: of many short pairs the median ratio is
known to a few hundredths. Its 90 % interval is a bootstrap's.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

from spec_core import load

sys.path.insert(0, str(Path(__file__).resolve().parent))
from spec_kernels.model.batch import Batch, SequenceRows
from threads import busy

DEPTH = 64
BURST = 0.125
"""Seconds."""
DRAWS = 1000


def forward(model: str) -> Callable[[int], object]:
    """A forward of so many rows behind DEPTH cached ones."""
    executor = load(model, kernels="native", threads=2).executor
    cache = executor.cache(512)

    def run(rows: int, at: int = DEPTH) -> object:
        tokens, places = torch.arange(rows) % 200 + 5, torch.arange(at, at + rows)
        return executor.run(Batch(tokens, places, [SequenceRows(cache, 0, rows, at)]))

    run(DEPTH, 0)
    return run


def rate(run: Callable[[int], object], rows: int, threads: int) -> float:
    """Forwards per second of one burst."""
    torch.set_num_threads(threads)
    run(rows)
    began, count = perf_counter(), 0
    while perf_counter() - began < BURST:
        run(rows)
        count += 1
    return count / (perf_counter() - began)


def pairs(run: Callable[[int], object], rows: int, seconds: float) -> list[tuple[float, float]]:
    """(rate of one thread, rate of two) of every pair."""
    found: list[tuple[float, float]] = []
    end = perf_counter() + seconds
    while perf_counter() < end:
        order = (1, 2) if len(found) % 2 else (2, 1)
        rates = {threads: rate(run, rows, threads) for threads in order}
        found.append((rates[1], rates[2]))
    return found


def interval(ratios: list[float]) -> tuple[float, float]:
    """90 % of the medians of bootstrap draws."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return medians[DRAWS // 20], medians[-DRAWS // 20]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=20, help="for each number of rows")
    args = parser.parse_args()
    run = forward(args.model)
    with busy(args.busy):
        for rows in args.rows:
            found = pairs(run, rows, args.seconds)
            ratios = [two / one for one, two in found]
            low, high = interval(ratios)
            one, two = (statistics.median(rates) for rates in zip(*found, strict=True))
            print(
                f"{args.model}, {rows} rows, beside {args.busy} busy loops: {one:.1f} and {two:.1f} forwards/s, "
                f"ratio {statistics.median(ratios):.2f} ({low:.2f}-{high:.2f}), {len(found)} pairs",
                flush=True,
            )


if __name__ == "__main__":
    main()
