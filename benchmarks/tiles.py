"""Cost of the rows of a tile: a forward of few rows with tiles of 1, 2, 4 and 8, in turns.

    python benchmarks/tiles.py [-m MODEL | --random] [--threads N] [--cached N] [--repeats N]

Prints the best milliseconds of each, with one thread of processor time, for other processes take less of that; and
whether the tile was found exact on this machine. ``--random``: 100 M random weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core.lazy import call_before_torch

call_before_torch()

import torch  # noqa: E402
from spec_kernels.model import tiles  # noqa: E402
from spec_targets.runtime.probe import explain_inexact  # noqa: E402

from spec_core import Draft, Target, load  # noqa: E402
from tests.support.draws import hundred_million  # noqa: E402
from tests.targets.drive import forward, part, sequence  # noqa: E402

TILES, ROWS = (1, 2, 4, 8), (1, 2, 3, 5, 9, 17)


def seconds(target: Target, seq, cached: int, rows: int) -> float:
    draft = Draft(list(range(rows - 1))) if rows > 1 else None
    clock = process_time if torch.get_num_threads() == 1 else perf_counter
    start = clock()
    forward(target, part(seq, cached, [1], draft))
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cached", type=int, default=90)
    parser.add_argument("--repeats", type=int, default=60)
    args = parser.parse_args()
    target = (
        hundred_million("reference", args.threads)
        if args.random
        else load(args.model, threads=args.threads, kernels="reference")
    )
    torch.set_num_threads(args.threads)
    tokens = list(range(args.cached + 1))
    seq = sequence(target, tokens)
    forward(target, part(seq, 0, tokens[:-1], decides=False))
    times: dict[tuple[int, int], list[float]] = {(t, r): [] for t in TILES for r in ROWS}
    for turn in range(args.repeats + 1):
        for (tile, rows), own_times in times.items():
            tiles.TILE = tile
            taken = seconds(target, seq, args.cached, rows)
            own_times += [taken] if turn else []
    print(f"{target.info.name}, {args.cached} cached rows, {args.threads} threads, best of {args.repeats}, ms")
    print("tile  " + "".join(f"{r:>5} rows" for r in ROWS) + "  exact")
    for tile in TILES:
        tiles.TILE = tile
        reason = explain_inexact(target.executor, target.info.context)
        print(f"{tile:4}  " + "".join(f"{1e3 * min(times[tile, r]):10.2f}" for r in ROWS) + f"  {reason or 'yes'}")


if __name__ == "__main__":
    main()
