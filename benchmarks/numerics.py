"""Numerics of the target's forward: precision of native activations, and exact tiles of the plain torch form.

    python benchmarks/numerics.py activations [FILE ...] [--rows 96]
    python benchmarks/numerics.py tiles [-m MODEL | --random] [--threads N] [--cached N] [--repeats N]

activations: native logits with activations of 15 and of 8 bits against a forward of the same weights in float64. FILE
is a quantised GGUF model or zoo:NAME; the default is zoo:pico and zoo:pico-hybrid. The float64 forward is the plain
torch reference over the dequantised blocks, with products in float64, and norms, rotation and attention in float32.
Error: root mean square over rows and vocabulary, as a share of the range of the float64 logits. Flips: rows whose best
token differs.

tiles: a forward of few rows with tiles of 1, 2, 4 and 8 rows, in turns. Prints the fastest milliseconds of each, of
processor time with one thread, since other processes disturb it less; and whether the tile is exact on this machine.
--random: 100 M random weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core.early import prepare

prepare()

import torch  # noqa: E402
from spec_kernels.model import tiles  # noqa: E402
from spec_kernels.model.batch import Batch, SequenceRows  # noqa: E402
from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot  # noqa: E402
from spec_kernels.model.reference import Reference  # noqa: E402
from spec_kernels.model.states import StatePool  # noqa: E402
from spec_kernels.native import ACTIVATIONS  # noqa: E402
from spec_targets.runtime.probe import exact  # noqa: E402
from torch import Tensor  # noqa: E402

from spec_core import Draft, Target, load  # noqa: E402
from tests.support.draws import hundred_million  # noqa: E402
from tests.targets.drive import forward, part, sequence  # noqa: E402

MODELS = ("zoo:pico", "zoo:pico-hybrid")
TILES, ROWS = (1, 2, 4, 8), (1, 2, 3, 5, 9, 17)


def drawn(vocab: int, rows: int) -> Tensor:
    """int64 [rows], random tokens."""
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


def errors(model: str, rows: int) -> list[tuple[str, float, int]]:
    """(activations, error, flips) of each format."""
    double: Tensor | None = None
    found = []
    for kind in ACTIVATIONS:
        executor = load(model, kernels="native", activations=kind).executor
        if double is None:
            tokens = drawn(load(model, weights=False).info.vocab, rows)
            reference = Reference(executor.model, executor.source, torch.float64, torch.device("cpu"))
            double = logits(reference, tokens)
        got = logits(executor, tokens).double()
        error = (got - double).square().mean().sqrt() / (double.max() - double.min())
        found.append((kind, error.item(), int((got.argmax(-1) != double.argmax(-1)).sum())))
    return found


def show_activations(args: argparse.Namespace) -> None:
    print(f"{'':40}{'activations':>12}{'error':>12}{'flips of ' + str(args.rows):>14}")
    for model in args.models:
        for kind, error, flips in errors(model, args.rows):
            print(f"{model[-40:]:40}{kind:>12}{error:12.4%}{flips:14}", flush=True)


def forward_seconds(target: Target, seq, cached: int, rows: int) -> float:
    """Of a forward of this number of rows."""
    draft = Draft(list(range(rows - 1))) if rows > 1 else None
    clock = process_time if torch.get_num_threads() == 1 else perf_counter
    start = clock()
    forward(target, part(seq, cached, [1], draft))
    return clock() - start


def timed(target: Target, cached: int, repeats: int) -> dict[tuple[int, int], list[float]]:
    """{(rows of a tile, rows of the forward): seconds of each repeat}, after one uncounted repeat."""
    tokens = list(range(cached + 1))
    seq = sequence(target, tokens)
    forward(target, part(seq, 0, tokens[:-1], decides=False))
    times: dict[tuple[int, int], list[float]] = {(t, r): [] for t in TILES for r in ROWS}
    for turn in range(repeats + 1):
        for (tile, rows), found in times.items():
            tiles.TILE = tile
            taken = forward_seconds(target, seq, cached, rows)
            found += [taken] if turn else []
    return times


def show_tiles(args: argparse.Namespace) -> None:
    target = (
        hundred_million("reference", args.threads)
        if args.random
        else load(args.model, threads=args.threads, kernels="reference")
    )
    torch.set_num_threads(args.threads)
    times = timed(target, args.cached, args.repeats)
    print(f"{target.info.name}, {args.cached} cached rows, {args.threads} threads, best of {args.repeats}, ms")
    print("tile  " + "".join(f"{r:>5} rows" for r in ROWS) + "  exact")
    for tile in TILES:
        tiles.TILE = tile
        said = exact(target.executor, target.info.context)
        print(f"{tile:4}  " + "".join(f"{1e3 * min(times[tile, r]):10.2f}" for r in ROWS) + f"  {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    activations = commands.add_parser("activations")
    activations.add_argument("models", nargs="*", default=MODELS)
    activations.add_argument("--rows", type=int, default=96)
    activations.set_defaults(show=show_activations)
    tile = commands.add_parser("tiles")
    tile.add_argument("-m", "--model", default="zoo:pico")
    tile.add_argument("--random", action="store_true")
    tile.add_argument("--threads", type=int, default=1)
    tile.add_argument("--cached", type=int, default=90)
    tile.add_argument("--repeats", type=int, default=60)
    tile.set_defaults(show=show_tiles)
    args = parser.parse_args()
    args.show(args)


if __name__ == "__main__":
    main()
