"""Latent attention beside attention over the same keys and values expanded: bytes of a cached row, and time of steps.

    python benchmarks/latents.py [--type Q8_0] [--threads 1] [--depth 2048] [--repeats 9] [--write]

Blocks of Kimi Linear's shape with attention alone and a small feed-forward layer, random weights. Expanded: blocks with
a key and a value for each of 32 heads, of 160 numbers each, together the 192 of a key and the 128 of a value. Forwards
of one row and of eight as ``spec bench step`` measures them, at the depth and behind 64 rows: the difference is the
time for the cached rows.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core.lazy import call_before_torch

call_before_torch()

import attrs  # noqa: E402
import torch  # noqa: E402
from spec_bench.step import measure  # noqa: E402
from spec_kernels.model.shapes import LatentShape  # noqa: E402
from spec_kernels.model.source import ShapeRecorder  # noqa: E402
from spec_targets.description.config import Config  # noqa: E402
from spec_targets.runtime.decoder import decoder  # noqa: E402
from spec_targets.runtime.load import make_target  # noqa: E402

from benchmarks.dense_shapes import random_blocks  # noqa: E402
from benchmarks.gemma4 import RandomFile  # noqa: E402
from benchmarks.support.results import save  # noqa: E402
from benchmarks.support.tables import heading, row  # noqa: E402
from spec_core import Sampling, Target  # noqa: E402

LAYERS, FEW, ROWS = 4, 64, (1, 8)
LATENT = LatentShape(rank=512, shared=64, plain=128, value=128)
EXPANDED = Config(
    arch="llama", name="expanded, random", layers=LAYERS, width=2304, heads=32, kv_heads=32, head=160, ff=1024,
    vocab=1024, context=8192, eps=1e-5, rope_base=1e4, rotary_dim=160, scale=192**-0.5,
)  # fmt: skip
LATENTS = attrs.evolve(
    EXPANDED, arch="kimi-linear", name="latents, random", kv_heads=1, head=LATENT.rank + LATENT.shared,
    rotary_dim=LATENT.shared, scale=0.0, latent=LATENT, dense=LAYERS,
)  # fmt: skip
CACHES = ("float32", "float16", "q8")
COLUMNS = ["cache", "form", "bytes of a row", "1 row, ms", "8 rows, ms", "1 row: cached, ms", "8 rows: cached, ms"]


class RandomStacks(RandomFile):
    """Also a matrix for every head."""

    def blocks(self, name: str) -> torch.Tensor:
        *count, k = self.shapes[name]
        seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return random_blocks(self.kind, math.prod(count), k, seed)


def make_model(config: Config, kind: str, cache: str, threads: int) -> Target:
    weights = RandomStacks(kind)
    recorder = ShapeRecorder(weights)
    decoder(config, recorder, False)
    weights.shapes = dict(recorder.wanted)
    return make_target(config, weights, None, kernels="native", device="cpu", threads=threads, cache_dtype=cache)


def lines(args: argparse.Namespace) -> Iterator[str]:
    """Rows of the table: the fastest forwards, which other programs disturb least."""
    for cache in CACHES:
        for name, config in (("latents", LATENTS), ("expanded", EXPANDED)):
            target = make_model(config, args.type, cache, args.threads)
            few, deep = (
                [cost.forward for cost in measure(target, ROWS, depth, 1, args.repeats, Sampling(0.0))]
                for depth in (FEW, args.depth)
            )
            cached = [many - before for many, before in zip(deep, few, strict=True)]
            figures = [f"{1e3 * seconds:.2f}" for seconds in (*deep, *cached)]
            yield row([cache, name, f"{target.info.row_bytes // LAYERS:,}", *figures])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", default="Q8_0", help="of weights")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/latents.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table = heading(COLUMNS)
    for line in lines(args):
        print(line, flush=True)
        table.append(line)
    if args.write:
        save("latents", lambda name: table)


if __name__ == "__main__":
    main()
