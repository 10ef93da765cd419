"""Cost of activations of 15 and of 8 bits in precision, beside the cost of the weights' own rounding.

    python benchmarks/activations.py [FILE ...] [--requantise Q4_0,Q6_K] [--rows 1024] [--peer PYTHON]

FILE: a quantised GGUF model, or zoo:NAME; without any: zoo:pico and zoo:pico-hybrid. The text is the zoo's prompts. All
is compared with the plain torch reference over the dequantised blocks, with products in float64:

- int15, int8: native forwards. With --requantise, whose weights are rounded anew and exist in no file, the reference
  with activations rounded to 8 bits in blocks of 32, which is what the native products do (``int8 rounded``).
- weights: the reference, each quantised weight moved at random within its own rounding step (uniform, seeded).
- llama.cpp: with --peer, an interpreter that has llama-cpp-python; its own logits of the same file.

KL: of the next token's probabilities, mean over rows. share: KL divided by that of ``weights``. rule: what the weights'
types promise for it, which decides ``activations=auto``. error: root mean square over rows and vocabulary, as a share
of the range of the logits. flips: rows whose best token is another.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.recurrence import Lines, Recurrence, RecurrentSlot
from spec_kernels.model.reference import Pass, Reference
from spec_kernels.model.states import StatePool
from spec_kernels.native import ACTIVATIONS
from spec_kernels.native.activations import by_types, ratio, sizes_of_types
from torch import Tensor

from spec_core import load

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.rounding import FLOATS, Noisy, Rounded

MODELS = ("zoo:pico", "zoo:pico-hybrid")
PROMPTS = Path(__file__).parent.parent / "plugins" / "models" / "spec_zoo" / "prompts-200.jsonl"
CUT = 256
"""Tokens of a text; one after the other, so that logits of a prompt stay small."""
SEED = 0


def texts(target: Any, rows: int) -> list[Tensor]:
    """Tokens of prompts, int64, ``rows`` altogether: one prompt of each family in turn."""
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    families = {family: [p for p in prompts if p["family"] == family] for family in {p["family"]: 0 for p in prompts}}
    pieces, left = [], rows
    for some in zip(*families.values(), strict=False):
        for prompt in some:
            tokens = target.tokenizer.encode(prompt["prompt"])[: min(CUT, left)]
            if len(tokens) > 1:
                pieces.append(torch.tensor(tokens))
                left -= len(tokens)
            if left < 2:
                return pieces
    return pieces


def logits(executor: Any, tokens: Tensor) -> Tensor:
    """[R, V] of one chain of rows."""
    n = len(tokens)
    lines, recurrence, shape = Lines(), None, executor.model.recurrent
    if shape is not None:
        pool = StatePool(shape, executor.model.recurring)
        pool.matrices, pool.windows = (m.to(getattr(executor, "dtype", m.dtype)) for m in (pool.matrices, pool.windows))
        lines.add(RecurrentSlot(pool).current, 0, n, [], [], 0)
        recurrence = Recurrence(pool, lines.lineage(), None, [])
    rows_of_one = SequenceRows(executor.cache(n), 0, n, 0)
    return executor.run(ForwardBatch(tokens, torch.arange(n), [rows_of_one], recurrence=recurrence))["logits"]


class RoundedRows(Reference):
    """The reference with activations of 8 bits where weights are quantised."""

    def run(self, batch: ForwardBatch) -> dict[str, Tensor]:
        with torch.inference_mode(), batch.steady():
            return RoundedPass(self, batch).run()


class RoundedPass(Pass):
    def linear(self, op: Any) -> None:
        """Weight by weight: rows are rounded for quantised ones."""
        exact = self.values[op.x]
        for out, weight, bias in zip(op.outs, op.weights, op.biases, strict=True):
            floats = self.of.source.type(weight.name) in FLOATS
            self.values[op.x] = exact if floats else eight_bits(exact)
            super().linear(replace(op, outs=(out,), weights=(weight,), biases=(bias,)))
        if op.x not in op.outs:
            self.values[op.x] = exact


def eight_bits(x: Tensor) -> Tensor:
    """Blocks of 32 rounded to 127 steps of their largest amount."""
    blocks = x.reshape(-1, 32)
    d = blocks.abs().amax(1, keepdim=True).clamp_min(1e-30) / 127
    return ((blocks / d).round() * d).reshape(x.shape)


class Figures:
    """Sums over rows of what one way of computing adds to the exact logits."""

    def __init__(self) -> None:
        self.rows = self.flips = self.nexts = 0
        self.kl = self.squares = self.surprise = self.range = 0.0

    def add(self, exact: Tensor, got: Tensor, tokens: Tensor) -> None:
        right, wrong = exact.double().log_softmax(-1), got.double().log_softmax(-1)
        self.rows += len(tokens)
        self.kl += (right.exp() * (right - wrong)).sum().item()
        self.flips += int((exact.argmax(-1) != got.argmax(-1)).sum())
        self.squares += (got.double() - exact.double()).square().mean(-1).sum().item()
        self.range = max(self.range, (exact.max() - exact.min()).item())
        self.surprise -= wrong[:-1].gather(1, tokens[1:, None]).sum().item()
        self.nexts += len(tokens) - 1

    @property
    def mean_kl(self) -> float:
        return self.kl / self.rows

    @property
    def perplexity(self) -> float:
        return math.exp(self.surprise / self.nexts)

    @property
    def error(self) -> float:
        return math.sqrt(self.squares / self.rows) / self.range


def executors(model: str, types: str | None) -> Iterator[tuple[str, Any]]:
    """The exact one first."""
    of = load(model, kernels="native").executor
    source = Rounded(of.source, lambda name: types)
    yield "float64", Reference(of.model, source, torch.float64)
    yield "weights", Reference(of.model, Noisy(source, SEED))
    if types is None:
        for kind in ACTIVATIONS:
            yield kind, load(model, kernels="native", activations=kind, cache_dtype="float32").executor
    yield "int8 rounded", RoundedRows(of.model, source, torch.float64)


def sizes(model: str, types: str | None) -> dict[str, int]:
    """Weights of every quantised type, as the rule counts them."""
    of = load(model, kernels="native").executor
    bytes_by_type = sizes_of_types(of.model, of.arena)
    return bytes_by_type if types is None else {types: sum(bytes_by_type.values())}


def measure(model: str, types: str | None, rows: int, peer: str | None) -> dict[str, Figures]:
    """Figures by the name of what computed."""
    target = load(model, weights=False)
    chosen = texts(target, rows)
    figures: dict[str, Figures] = {}
    exact: list[Tensor] = []
    for name, executor in executors(model, types):
        got = [logits(executor, tokens).float() if exact else logits(executor, tokens) for tokens in chosen]
        exact = exact or got
        figures[name] = sum_figures(exact, got, chosen)
    if peer and types is None:
        figures["llama.cpp"] = sum_figures(exact, peer_logits(peer, str(target.weights.file.path), chosen), chosen)
    return figures


def sum_figures(exact: Iterable[Tensor], got: Iterable[Tensor], tokens: Iterable[Tensor]) -> Figures:
    figures = Figures()
    for one in zip(exact, got, tokens, strict=True):
        figures.add(*one)
    return figures


def peer_logits(python: str, file: str, tokens: list[Tensor]) -> list[Tensor]:
    program = Path(__file__).parent / "support" / "peer_logits.py"
    with TemporaryDirectory() as folder:
        texts, out = Path(folder) / "texts.json", Path(folder) / "logits.npy"
        texts.write_text(json.dumps([t.tolist() for t in tokens]))
        subprocess.run([python, str(program), file, str(texts), str(out)], check=True)
        return list(torch.from_numpy(np.load(out)).split([len(t) for t in tokens]))


def show(title: str, promised: str, figures: dict[str, Figures]) -> None:
    own = figures["weights"].mean_kl
    print(f"\n{title}, {figures['float64'].rows} rows; {promised}")
    print(f"{'':14}{'KL':>10}{'share':>9}{'error':>10}{'perplexity':>12}{'flips':>8}")
    for name, f in figures.items():
        share = f"{f.mean_kl / own:9.2%}"
        print(
            f"{name:14}{f.mean_kl:10.1e}{share}{f.error:10.4%}{f.perplexity:12.3f}{f.flips / f.rows:8.1%}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--requantise", default="", help="types of blocks, by commas; the file's own come first")
    parser.add_argument("--peer", help="an interpreter that has llama-cpp-python")
    args = parser.parse_args()
    for model in args.models:
        for types in (None, *filter(None, args.requantise.split(","))):
            counts = sizes(model, types)
            mix = ", ".join(f"{type} {count / sum(counts.values()):.0%}" for type, count in counts.items())
            rule = f"rule: {ratio(counts):.2%}, {by_types(counts).name} ({mix})"
            show(f"{model[-60:]}{f' in {types}' if types else ''}", rule, measure(model, types, args.rows, args.peer))


if __name__ == "__main__":
    main()
