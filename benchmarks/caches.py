"""Cost of smaller KV caches in precision, and their gain in time: native logits against those with a float32 cache.

    python benchmarks/caches.py [MODEL ...] [--texts 8] [--rows 512] [--depths 64,448,2048]

MODEL: a GGUF file or zoo:NAME; without any: zoo:pico and zoo:smollm2. Texts are pages of this documentation, from
their beginning. KL: of the distributions of the next token, float32 against the other, in nats per token. Flips: rows
whose best token is another. T(n): milliseconds of CPU time of a forward of n rows at a depth, minimum of many, the
caches by turns, one thread; run it with `taskset -c 0`. ``--texts 0`` leaves out the precision.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot
from spec_kernels.model.states import StatePool
from spec_kernels.native import CACHES
from torch import Tensor

from spec_core import Target, load

MODELS = ("zoo:pico", "zoo:smollm2")
DOCS = Path(__file__).parents[1] / "docs"


def texts(target: Target, count: int, rows: int) -> list[Tensor]:
    """int64 [rows] each."""
    pages = sorted(DOCS.glob("*.md"), key=lambda page: -page.stat().st_size)[:count]
    encoded = (target.tokenizer.encode(page.read_text()[: 8 * rows]) for page in pages)
    return [torch.tensor(list(tokens)[:rows]) for tokens in encoded]


def logits(executor: object, tokens: Tensor) -> Tensor:
    """[R, V] of one chain of rows."""
    n, lines, recurrence, shape = len(tokens), Lines(), None, executor.model.recurrent
    if shape is not None:
        pool = StatePool(shape, executor.model.recurring)
        lines.add(RecurrentSlot(pool).current, 0, n, [], [], 0)
        recurrence = Recurrence(pool, lines.lineage(), None, [])
    rows_of_one = SequenceRows(executor.cache(n), 0, n, 0)
    return executor.run(ForwardBatch(tokens, torch.arange(n), [rows_of_one], recurrence=recurrence))["logits"]


def divergence(exact: Tensor, got: Tensor) -> tuple[float, int]:
    """(sum of KL in nats, flips) over rows."""
    p, q = (x.double().log_softmax(-1) for x in (exact, got))
    return float((p.exp() * (p - q)).sum()), int((exact.argmax(-1) != got.argmax(-1)).sum())


def precision(targets: dict[str, Target], count: int, rows: int) -> None:
    sums, total = {kind: [0.0, 0] for kind in targets}, 0
    for tokens in texts(targets["float32"], count, rows):
        exact = logits(targets["float32"].executor, tokens)
        total += len(tokens)
        for kind, target in targets.items():
            for i, part in enumerate(divergence(exact, logits(target.executor, tokens))):
                sums[kind][i] += part
    for kind, (kl, flips) in sums.items():
        print(f"  {kind:8} KL {kl / total:9.2e}  flips {flips} of {total}", flush=True)


def forward(target: Target, rows: int, depth: int) -> object:
    """A call that computes logits of `rows` rows behind `depth` cached ones."""
    executor, tokens = target.executor, torch.arange(rows) + 100
    cache = executor.cache(depth + rows)
    for start in range(0, depth, 256):
        n = min(256, depth - start)
        executor.run(
            ForwardBatch(torch.arange(n) + 100, torch.arange(start, start + n), [SequenceRows(cache, 0, n, start)])
        )
    batch = ForwardBatch(tokens, torch.arange(depth, depth + rows), [SequenceRows(cache, 0, rows, depth)])
    return lambda: executor.run(batch)


def speed(targets: dict[str, Target], depths: list[int], seconds: float = 3) -> None:
    for depth in depths:
        for rows in (1, 8):
            calls = {kind: forward(target, rows, depth) for kind, target in targets.items()}
            best, end = dict.fromkeys(calls, float("inf")), time.perf_counter() + seconds
            while time.perf_counter() < end:
                for kind, call in calls.items():
                    begin = time.thread_time()
                    call()
                    best[kind] = min(best[kind], time.thread_time() - begin)
            times = "  ".join(f"{kind} {1e3 * taken:8.3f}" for kind, taken in best.items())
            print(f"  depth {depth:5} T({rows}) ms: {times}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--depths", default="64,448,2048")
    parser.add_argument("--activations", default="int15")
    args = parser.parse_args()
    for model in args.models:
        print(model)
        options = {"kernels": "native", "threads": 1, "activations": args.activations}
        targets = {kind: load(model, cache_dtype=kind, **options) for kind in CACHES}
        if args.texts:
            precision(targets, args.texts, args.rows)
        if targets["float32"].executor.model.recurrent is None:
            depths = [int(depth) for depth in args.depths.split(",")]
            speed(targets, [depth for depth in depths if depth + 8 <= targets["float32"].info.context])


if __name__ == "__main__":
    main()
