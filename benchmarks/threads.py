"""Threads of plain decoding and of the forward, alone and beside busy loops.

    python benchmarks/threads.py [-m MODEL] [--busy 2] [--rounds 5] [-n 48] [--kernels native]
    python benchmarks/threads.py --bursts [-m MODEL] [--busy 1] [--rows 1 8] [--seconds 20] [--pin]

The first form compares the default number of threads with one and two: tokens per second of plain decoding, alone and
beside the loops. Every measurement is a process of its own, since OpenMP reads its settings once; all take turns, and
ratios are those of one round. ``spinning 2`` is two threads that wait as torch's own threads do.

The second form compares T(n), milliseconds of a forward of n rows, with one and with two threads, alone and beside the
loops, in pairs of bursts of an eighth of a second, in alternating order. The scheduler's slices are
milliseconds long, so the median ratio of many short pairs varies less than that of a few long rounds. Its 90 % interval
is a bootstrap interval; above 1, two threads are faster. ``--pin``, on Linux: the calling thread keeps the first core
that this process may use, its other threads and the loops keep the second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

CONTENDERS: dict[str, tuple[int, dict[str, str]]] = {
    "default": (0, {}),
    "1 thread": (1, {}),
    "2 threads": (2, {}),
    "spinning 2": (2, {"KMP_BLOCKTIME": "200"}),
}
"""Number of threads, and environment variables. libgomp ignores KMP_BLOCKTIME, but if it is set, spec-core does not
set how threads wait."""
DEPTH = 64
"""Cached rows before a forward of a burst."""
BURST = 0.125
"""Seconds."""
DRAWS = 1000
"""Bootstrap draws."""
WORK = """
import sys, json
from time import perf_counter
from spec_core import Run, load
model, kernels, threads, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if model == "random":
    sys.path.insert(0, ".")
    from spec_targets.runtime.checkpoint import Checkpoint
    from spec_targets.runtime.load import make_target
    from tests.support.draws import SHAPE, RandomWeights
    target = make_target(Checkpoint(SHAPE, RandomWeights(SHAPE)), kernels=kernels, threads=threads)
else:
    target = load(model, kernels=kernels, threads=threads)
run, prompt = Run(target), list(range(1, 40))
run.generate(prompt, max_tokens=4, ignore_eos=True).result
start = perf_counter()
run.generate(prompt, max_tokens=n, ignore_eos=True).result
print(json.dumps({"rate": n / (perf_counter() - start), "threads": target.info.threads}))
"""


def two_cores() -> list[int]:
    """The first two that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit(f"--pin needs two cores, and this process may use {len(cores)}; run it without taskset")
    return cores[:2]


def pin_threads(cores: list[int]) -> None:
    """The calling thread to the first core, all other threads of this process to the second."""
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, {cores[thread != threading.get_native_id()]})


@contextmanager
def busy(loops: int, core: int | None = None) -> Iterator[None]:
    """Runs this number of other processes that never wait, all on one core if it is given."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        for other in others if core is not None else ():
            os.sched_setaffinity(other.pid, {core})
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def decode_rate(model: str, kernels: str, name: str, n: int) -> tuple[float, str]:
    threads, more = CONTENDERS[name]
    command = [sys.executable, "-c", WORK, model, kernels, str(threads), str(n)]
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    return report["rate"], report["threads"]


def forward(model: str, activations: str) -> Callable[[int], object]:
    """A function that runs a forward of a number of rows after DEPTH cached ones."""
    import torch
    from spec_kernels.model.batch import ForwardBatch, SequenceRows

    from spec_core import load

    executor = load(model, kernels="native", threads=2, activations=activations).executor
    cache = executor.cache(512)

    def run(rows: int, at: int = DEPTH) -> object:
        tokens, places = torch.arange(rows) % 200 + 5, torch.arange(at, at + rows)
        return executor.run(ForwardBatch(tokens, places, [SequenceRows(cache, 0, rows, at)]))

    run(DEPTH, 0)
    return run


def burst_rate(run: Callable[[int], object], rows: int, threads: int) -> float:
    """Forwards per second of one burst."""
    import torch

    torch.set_num_threads(threads)
    run(rows)
    began, count = perf_counter(), 0
    while perf_counter() - began < BURST:
        run(rows)
        count += 1
    return count / (perf_counter() - began)


def pairs(run: Callable[[int], object], rows: int, seconds: float) -> list[tuple[float, float]]:
    """(rate of one thread, rate of two) of each pair."""
    measured: list[tuple[float, float]] = []
    end = perf_counter() + seconds
    while perf_counter() < end:
        order = (1, 2) if len(measured) % 2 else (2, 1)
        rates = {threads: burst_rate(run, rows, threads) for threads in order}
        measured.append((rates[1], rates[2]))
    return measured


def interval(ratios: list[float]) -> tuple[float, float]:
    """Limits of 90 % of the medians of bootstrap draws."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return medians[DRAWS // 20], medians[-DRAWS // 20]


def rounds(args: argparse.Namespace) -> None:
    """Compare the default number of threads with one and two."""
    for loops in (0, args.busy):
        rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        with busy(loops):
            for turn in range(args.rounds):
                for name in sorted(CONTENDERS, key=lambda name: hash((name, turn))):
                    tokens_per_second, facts = decode_rate(args.model or "random", args.kernels, name, args.n)
                    rates[name].append(tokens_per_second)
                    print(
                        f"  {loops} busy, round {turn}: {name:11} {tokens_per_second:8.2f} tokens/s  {facts}",
                        file=sys.stderr,
                    )
        best = [max(rates[n][i] for n in ("1 thread", "2 threads", "spinning 2")) for i in range(args.rounds)]
        against = rates["1 thread"] if loops else best
        print(f"{args.model or 'random'}, beside {loops} busy loops, median tokens/s of {args.rounds} rounds")
        for name, own_rates in rates.items():
            ratio = statistics.median(a / b for a, b in zip(own_rates, against, strict=True))
            what = "one thread" if loops else "the best of that round"
            print(f"  {name:11}{statistics.median(own_rates):9.2f}   {ratio:.2f} of {what}")


def bursts(args: argparse.Namespace) -> None:
    """Compare forwards of two threads with those of one, alone and beside busy loops."""
    model, cores = args.model or "zoo:smollm2", two_cores() if args.pin else None
    run = forward(model, args.activations)
    if cores:
        pin_threads(cores)
    print(f"{model}, depth {DEPTH}{', pinned' if cores else ''}; ms of a forward with one and with two threads")
    for loops in (0, args.busy):
        with busy(loops, cores[1] if cores else None):
            for rows in args.rows:
                print(f"  beside {loops} busy loops: {comparison(rows, pairs(run, rows, args.seconds))}", flush=True)


def comparison(rows: int, rates: list[tuple[float, float]]) -> str:
    """rates: of one thread and of two, pair by pair."""
    one, two = (1e3 / statistics.median(own_rates) for own_rates in zip(*rates, strict=True))
    ratios = [two / one for one, two in rates]
    low, high = interval(ratios)
    text = f"{statistics.median(ratios):.2f} times as fast ({low:.2f}-{high:.2f})"
    return f"T({rows}) {one:.2f} and {two:.2f}, {text}, {len(rates)} pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="default: 100 M random weights; of --bursts zoo:smollm2")
    parser.add_argument("--busy", type=int, default=2, help="number of busy loops")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=48, help="tokens")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--bursts", action="store_true", help="two threads against one, in short bursts")
    parser.add_argument("--pin", action="store_true", help="of --bursts: every thread and loop keeps a core")
    parser.add_argument("--activations", default="auto", help="of --bursts: auto, int15 or int8")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8], help="rows of a forward of --bursts")
    parser.add_argument("--seconds", type=float, default=20, help="of --bursts, for each number of rows")
    args = parser.parse_args()
    (bursts if args.bursts else rounds)(args)


if __name__ == "__main__":
    main()
