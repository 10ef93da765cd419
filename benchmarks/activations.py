"""What rows of 15 and of 8 bits cost in precision: native logits against a forward of the same weights in float64.

    python benchmarks/activations.py [FILE ...] [--rows 96]

FILE: a quantised GGUF model, or zoo:NAME; without any: zoo:pico and zoo:pico-hybrid. The float64 forward is the plain
torch reference over the dequantised blocks: products in float64; norms, rotation and attention in float32.
Error: root mean square over rows and vocabulary, as a share of the range of the float64 logits. Flips: rows whose best
token is another.
"""

from __future__ import annotations

import argparse

import torch
from spec_kernels.model.batch import Batch, SequenceRows
from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot
from spec_kernels.model.reference import Reference
from spec_kernels.model.states import StatePool
from spec_kernels.native import ACTIVATIONS
from torch import Tensor

from spec_core import load

MODELS = ("zoo:pico", "zoo:pico-hybrid")


def text(vocab: int, rows: int) -> Tensor:
    """int64 [rows], drawn: what a model is sure of and what not."""
    return torch.randint(0, vocab, (rows,), generator=torch.Generator().manual_seed(0))


def logits(executor: object, tokens: Tensor) -> Tensor:
    """[R, V] of one chain of rows."""
    n = len(tokens)
    lines, recurrence, delta = Lines(), None, executor.model.delta
    if delta is not None:
        pool = StatePool(delta, executor.model.recurring)
        pool.matrices, pool.windows = (m.to(getattr(executor, "dtype", m.dtype)) for m in (pool.matrices, pool.windows))
        lines.add(RecurrentSlot(pool).current, 0, n, [], [], 0)
        recurrence = Recurrence(pool, lines.lineage(), None, [])
    rows_of_one = SequenceRows(executor.cache(n), 0, n, 0)
    return executor.run(Batch(tokens, torch.arange(n), [rows_of_one], recurrence=recurrence))["logits"]


def measure(model: str, rows: int) -> list[tuple[str, float, int]]:
    """(activations, error, flips) of every kind."""
    exact: Tensor | None = None
    found = []
    for kind in ACTIVATIONS:
        executor = load(model, kernels="native", activations=kind, cache_dtype="float32").executor
        if exact is None:
            tokens = text(load(model, weights=False).info.vocab, rows)
            double = Reference(executor.model, executor.source, torch.float64, torch.device("cpu"))
            exact = logits(double, tokens)
        got = logits(executor, tokens).double()
        error = (got - exact).square().mean().sqrt() / (exact.max() - exact.min())
        found.append((kind, error.item(), int((got.argmax(-1) != exact.argmax(-1)).sum())))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rows", type=int, default=96)
    args = parser.parse_args()
    print(f"{'':40}{'activations':>12}{'error':>12}{'flips of ' + str(args.rows):>14}")
    for model in args.models:
        for kind, error, flips in measure(model, args.rows):
            print(f"{model[-40:]:40}{kind:>12}{error:12.4%}{flips:14}", flush=True)


if __name__ == "__main__":
    main()
