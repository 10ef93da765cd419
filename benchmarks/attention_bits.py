"""Cost of dot products of bytes in attention: KL of emulations against attention in float32.

    python benchmarks/attention_bits.py [MODEL ...] [--texts 2] [--rows 2048]

MODEL: a GGUF file or zoo:NAME; without any: zoo:pico, zoo:pico-hybrid and zoo:smollm2. Texts are pages of this
documentation. All runs on the plain torch reference:

- weights: each quantised weight moved at random within its own rounding step; the measure that activations=auto uses
- q k: queries and keys rounded to 8 bits in blocks of 32 dimensions
- p v: weights of the softmax and values rounded to 8 bits in blocks of 32 positions; a row's last block, which is not
  complete, stays as it is, so that later positions do not change what a row reads
- both

KL: of the next token's probabilities, mean over rows of three ranges of positions. share: KL divided by that of
``weights`` in the same range.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.reference import Pass, Reference
from torch import Tensor
from torch.nn import functional as F

from spec_core import load

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.activations import SEED, logits
from benchmarks.caches import texts
from benchmarks.support.rounding import Noisy, Rounded

MODELS = ("zoo:pico", "zoo:pico-hybrid", "zoo:smollm2")
RANGES = ((0, 256), (256, 1024), (1024, 2048))
"""Positions, from and to."""
BLOCK = 32
"""Dimensions or positions that share a scale."""
LEVELS = 127


def round_blocks(x: Tensor) -> Tensor:
    """The last dimension in blocks of 8 bits; it is padded with zeros to whole blocks."""
    blocks = F.pad(x, (0, -x.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30) / LEVELS
    return ((blocks / scale).round() * scale).flatten(-2)[..., : x.shape[-1]]


class RoundedAttention(Reference):
    """The reference with rounded factors in attention. scores, values: which of the two products are rounded."""

    scores = values = False

    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        with torch.inference_mode(), batch.steady():
            return RoundedPass(self, batch).run()


class RoundedPass(Pass):
    def _attend(self, op, s: SequenceRows, q: Tensor) -> Tensor:
        """One chain from position 0 on. q: [n, H, D]; returns [n, H, D]"""
        keys, values = (x[op.layer][:, : s.rows].float() for x in (s.cache.keys, s.cache.values))
        heads = q.float().transpose(0, 1).unflatten(0, (len(keys), -1))  # [K, G, n, D]
        if self.of.scores:
            heads, keys = round_blocks(heads), round_blocks(keys)
        place = torch.arange(s.rows)
        behind = place[:, None] - place
        seen = (behind >= 0) & (behind < op.shape.window if op.shape.window else True)
        scores = (heads @ keys[:, None].mT * op.shape.scale).masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1)
        out = weigh(weights, values) if self.of.values else weights @ values[:, None]
        return out.flatten(0, 1).transpose(0, 1).to(q.dtype)


def weigh(weights: Tensor, values: Tensor) -> Tensor:
    """Complete blocks of positions rounded, a row's last one exact. weights: [K, G, n, T], values: [K, T, D]"""
    n = weights.shape[-1]
    complete = torch.arange(n) // BLOCK < (torch.arange(n)[:, None] + 1) // BLOCK  # [n, T]
    exact = weights.masked_fill(complete, 0.0) @ values[:, None]
    return exact + round_blocks(weights.masked_fill(~complete, 0.0)) @ round_blocks(values.mT).mT[:, None]


def executors(model: str) -> Iterator[tuple[str, Reference]]:
    """The exact one first."""
    of = load(model, kernels="native").executor
    source = Rounded(of.source, lambda name: None)
    for name, (scores, values) in {"exact": (0, 0), "q k": (1, 0), "p v": (0, 1), "both": (1, 1)}.items():
        executor = RoundedAttention(of.model, source)
        executor.scores, executor.values = bool(scores), bool(values)
        yield name, executor
    yield "weights", RoundedAttention(of.model, Noisy(source, SEED))


def row_divergences(exact: Tensor, got: Tensor) -> Tensor:
    """KL of each row, float64 [n]."""
    return torch.stack([divergence(*pair) for pair in zip(exact, got, strict=True)])


def divergence(exact: Tensor, got: Tensor) -> Tensor:
    right, wrong = exact.double().log_softmax(-1), got.double().log_softmax(-1)
    return (right.exp() * (right - wrong)).sum()


def measure(model: str, count: int, rows: int) -> dict[str, Tensor]:
    """KL by name, [rows of the longest text], the mean over texts."""
    chosen = texts(load(model, weights=False), count, rows)
    sums: dict[str, list[Tensor]] = {}
    exact: list[Tensor] = []
    for name, executor in executors(model):
        got = [logits(executor, tokens).float() for tokens in chosen]
        exact = exact or got
        sums[name] = [row_divergences(*pair) for pair in zip(exact, got, strict=True)]
    shortest = min(map(len, chosen))
    return {name: torch.stack([kl[:shortest] for kl in divergences]).mean(0) for name, divergences in sums.items()}


def show(model: str, divergences: dict[str, Tensor]) -> None:
    print(f"{model}, positions")
    for low, high in RANGES:
        if low >= len(divergences["weights"]):
            break
        own = divergences["weights"][low:high].mean()
        cells = (
            f"{name} {kl[low:high].mean():.1e} ({kl[low:high].mean() / own:.1%})" for name, kl in divergences.items()
        )
        print(f"  {low:5}-{high:<5} {'  '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--texts", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2048)
    args = parser.parse_args()
    for model in args.models:
        show(model, measure(model, args.texts, args.rows))


if __name__ == "__main__":
    main()
