"""Default threads against one and two, alone and beside busy loops: tokens per second of plain decoding.

    python benchmarks/threads.py [-m MODEL] [--busy 2] [--rounds 5] [-n 48] [--kernels native]

Every cell is a process of its own, for how threads wait is read once; all take turns, and ratios are those of one
round. ``default`` is what a user gets; ``spinning 2`` is two threads that wait as torch's own do: the default before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CONTENDERS: dict[str, tuple[int, dict[str, str]]] = {
    "default": (0, {}),
    "1 thread": (1, {}),
    "2 threads": (2, {}),
    "spinning 2": (2, {"KMP_BLOCKTIME": "200"}),
}
"""Threads asked for, and what the environment says; KMP_BLOCKTIME is not libgomp's, it only keeps ours from acting."""
WORK = """
import sys, json
from time import perf_counter
from spec_core import Run, load
model, kernels, threads, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if model == "random":
    sys.path.insert(0, ".")
    from spec_targets.runtime.load import make_target
    from tests.support.draws import SHAPE, RandomWeights
    target = make_target(SHAPE, RandomWeights(SHAPE), None, kernels=kernels, threads=threads)
else:
    target = load(model, kernels=kernels, threads=threads)
run, prompt = Run(target), list(range(1, 40))
run.generate(prompt, max_tokens=4, ignore_eos=True).result
start = perf_counter()
run.generate(prompt, max_tokens=n, ignore_eos=True).result
print(json.dumps({"rate": n / (perf_counter() - start), "threads": target.info.extras["threads"]}))
"""


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many other processes that never wait."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def rate(model: str, kernels: str, name: str, n: int) -> tuple[float, str]:
    threads, more = CONTENDERS[name]
    command = [sys.executable, "-c", WORK, model, kernels, str(threads), str(n)]
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    return said["rate"], said["threads"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="random", help="a model, or random: 100 M random weights")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=48)
    args = parser.parse_args()
    for loops in (0, args.busy):
        rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        with busy(loops):
            for turn in range(args.rounds):
                for name in sorted(CONTENDERS, key=lambda name: hash((name, turn))):
                    found, said = rate(args.model, args.kernels, name, args.n)
                    rates[name].append(found)
                    print(f"  {loops} busy, round {turn}: {name:11} {found:8.2f} tokens/s  {said}", file=sys.stderr)
        best = [max(rates[n][i] for n in ("1 thread", "2 threads", "spinning 2")) for i in range(args.rounds)]
        against = rates["1 thread"] if loops else best
        print(f"{args.model}, beside {loops} busy loops, median tokens/s of {args.rounds} rounds")
        for name, found in rates.items():
            ratio = statistics.median(a / b for a, b in zip(found, against, strict=True))
            what = "one thread" if loops else "the best of that round"
            print(f"  {name:11}{statistics.median(found):9.2f}   {ratio:.2f} of {what}")


if __name__ == "__main__":
    main()
