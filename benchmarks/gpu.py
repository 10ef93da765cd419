"""A decoding step on a GPU, from the repository alone: random weights of published shapes, made on the device.

Results are checked before anything is timed: rows have equal bits alone, in verify steps and in batches, and texts with
drafts equal plain ones. Times are medians of replayed steps; the copy rate is bytes read and written.

    python benchmarks/gpu.py [--shape Qwen3-8B] [--type BF16 --type Q8_0 --type Q4_K] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from spec_kernels.gpu.executor import Gpu
from spec_kernels.gpu.graphs import Bucket
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.ops.dequant import TYPES as KINDS

from benchmarks.dense_shapes import (
    QWEN3_06B,
    QWEN3_8B,
    TINY,
    DenseShape,
    RandomBlocks,
    RandomWeights,
    dense_model,
    dense_target,
)
from spec_core import Request, Run, Sampling
from spec_core.toolkit import DraftLimits

TYPES = ("BF16", "Q8_0", "Q4_K")
"""Types of matrices."""
PROMPT = 512
"""Rows of a prompt, in one forward."""
DRAFTED = 4
"""Tokens of a chain that is drafted in one graph."""
SHAPES = {shape.name: shape for shape in (QWEN3_8B, QWEN3_06B, TINY)}
ROWS = (1, 2, 4, 8, 16, 32)
CONTEXTS = (512, 4096)
BATCHES = ((8, 1), (8, 5), (32, 1), (32, 5))
"""Sequences, and rows of each."""
REPEATS = 30
TEXTS, TOKENS = 20, 48
"""Size of the check of texts: requests of each sampling, and tokens of each."""


def median_seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Median seconds of a call on the device, which is warm."""
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def copy_rate() -> float:
    """Bytes per second that a large copy reads and writes."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    to = torch.empty_like(source)
    return 2 * source.numel() / median_seconds(lambda: to.copy_(source))


class Steps:
    """Steps of one executor over texts of random tokens."""

    def __init__(self, executor: Gpu, shape: DenseShape) -> None:
        self.executor, self.shape = executor, shape
        self.generator = torch.Generator().manual_seed(0)

    def tokens(self, count: int) -> torch.Tensor:
        return torch.randint(self.shape.vocab, (count,), generator=self.generator)

    def batch(self, sequences: int, rows: int, context: int) -> ForwardBatch:
        """A verify step of several sequences; their cached rows are what the pages hold."""
        spans = [SequenceRows(self.executor.cache(context + rows), i * rows, rows, context) for i in range(sequences)]
        positions = torch.arange(context, context + rows).repeat(sequences)
        return ForwardBatch(self.tokens(sequences * rows), positions, spans)

    def seconds(self, sequences: int, rows: int, context: int) -> float:
        """Seconds of one step's graph."""
        batch = self.batch(sequences, rows, context)
        for _ in range(3):
            self.executor.run(batch)
        return median_seconds(self._last_bucket().graph.replay)

    def _last_bucket(self) -> Bucket:
        return next(reversed(self.executor.buckets._buckets.values()))

    def shares(self, rows: int, context: int) -> dict[str, float]:
        """Seconds of each kind of launch in a step, each kind alone, one after the other in a graph."""
        self.seconds(1, rows, context)
        kinds = defaultdict(list)
        for name, launch in self._last_bucket().program.launches:
            kinds[name].append(launch)
        return {name: median_seconds(capture_launches(launches).replay) for name, launches in kinds.items()}

    def host(self, rows: int, context: int) -> dict[str, float]:
        """Seconds of the parts of a step on the host, and of a whole one with its download."""
        batch = self.batch(1, rows, context)
        for _ in range(3):
            logits = self.executor.run(batch)["logits"]
        parts = defaultdict(list)
        for _ in range(200):
            torch.cuda.synchronize()
            began = perf_counter()
            logits = self.executor.run(batch)["logits"]
            launched = perf_counter()
            logits[:, 0].cpu()
            parts["describe, upload, launch"].append(launched - began)
            parts["whole, with a download"].append(perf_counter() - began)
        return {name: statistics.median(times) for name, times in parts.items()}

    def drafting(self, context: int) -> float:
        """Seconds of a chain of DRAFTED tokens behind one row, its download included."""
        limits = [DraftLimits(DRAFTED, DRAFTED, 1, 0.0)]
        batch = self.batch(1, 1, context)
        batch.sequences[0].cache.reserve(context + 1 + DRAFTED)
        return median_seconds(lambda: self.executor.draft(batch, limits))

    def check_bits(self) -> None:
        """Raise AssertionError unless a row has the same bits alone, in a step of 16 and among 8 x 5 rows."""
        cache = self.executor.cache(600)
        tokens = self.tokens(316)
        run = lambda *spans: self.executor.run(_batch_of(spans))["logits"].clone()
        prompt = run((cache, 0, tokens))
        for count in (1, 2, 16):
            rows = run((cache, 300, tokens[300 : 300 + count]))
            assert torch.equal(rows, prompt[300 : 300 + count]), f"rows of {count} differ from the prompt's"
        others = [(self.executor.cache(600), 0, self.tokens(5)) for _ in range(7)]
        assert torch.equal(run(*others, (cache, 300, tokens[300:305]))[-5:], prompt[300:305]), "rows of 8 x 5 differ"


def _batch_of(spans: Any) -> ForwardBatch:
    sequences, tokens, positions = [], [], []
    for cache, start, some in spans:
        sequences.append(SequenceRows(cache, sum(map(len, tokens)), len(some), start))
        tokens.append(some)
        positions.append(torch.arange(start, start + len(some)))
    return ForwardBatch(torch.cat(tokens), torch.cat(positions), sequences)


def capture_launches(launches: list[Callable[[], None]]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    return graph


def check_texts(shape: DenseShape) -> dict[str, Any]:
    """Texts with n-gram drafts and plain ones, eight at a time: how many differ, of how many."""
    target = dense_target(shape, "cuda", torch.bfloat16)
    result: dict[str, Any] = {"different": 0, "texts": 0}
    for sampling in (Sampling(), Sampling(temperature=0.8)):
        requests = [
            Request([7 * i + j for j in range(6)] * 3, max_tokens=TOKENS, seed=i, sampling=sampling)
            for i in range(TEXTS)
        ]
        texts = [
            [g.result.tokens for g in Run(target, methods, max_sequences=8).generate(requests)]
            for methods in ([], ["ngram"])
        ]
        result["texts"] += TEXTS
        result["different"] += sum(a != b for a, b in zip(*texts, strict=True))
    return result


def whole_steps(shape: DenseShape) -> dict[str, float]:
    """Median seconds of a whole step of ``Run`` with n-gram drafts, one sequence, greedy and sampled."""
    target = dense_target(shape, "cuda", torch.bfloat16)
    results = {}
    for name, temperature in (("greedy", 0.0), ("temperature 0.8", 0.8)):
        run = Run(target, ["ngram"])
        run.submit([1, 2, 3, 4] * 120, max_tokens=160, ignore_eos=True, sampling=Sampling(temperature))
        times = []
        while run.busy:
            began = perf_counter()
            run.step()
            times.append(perf_counter() - began)
        results[name] = statistics.median(times[20:])
    return results


def transformers_rates(shape: DenseShape) -> dict[str, float]:
    """Tokens per second of transformers' ``generate`` at batch 1: plain, and with prompt lookup."""
    import transformers

    config = transformers.Qwen3Config(
        vocab_size=shape.vocab, hidden_size=shape.width, intermediate_size=shape.inner, head_dim=shape.dim,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=shape.tied, dtype="bfloat16",
    )  # fmt: skip
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    prompt = torch.randint(1000, (1, 512), device="cuda")
    rates = {}
    for name, more in (("generate", {}), ("assisted by prompt lookup", {"prompt_lookup_num_tokens": 8})):
        options = {"max_new_tokens": 48, "min_new_tokens": 48, "do_sample": False, **more}
        model.generate(prompt, **options | {"max_new_tokens": 4, "min_new_tokens": 4})
        torch.cuda.synchronize()
        began = perf_counter()
        count = model.generate(prompt, **options).shape[1] - prompt.shape[1]
        torch.cuda.synchronize()
        rates[name] = count / (perf_counter() - began)
    return rates


def measure(shape: DenseShape, type: str, quick: bool) -> dict[str, Any]:
    """Everything of one shape with matrices of one type."""
    floats = RandomWeights(shape, torch.bfloat16, "cuda")
    source = floats if type == "BF16" else RandomBlocks(shape, {"": type}, "cuda")
    weight = 2.0 if type == "BF16" else KINDS[type].bytes / KINDS[type].elements
    steps = Steps(Gpu(dense_model(shape, source), source, torch.bfloat16, torch.device("cuda"), 8192), shape)
    steps.check_bits()
    contexts = CONTEXTS[:1] if quick else CONTEXTS
    result: dict[str, Any] = {
        "rows": {c: {n: steps.seconds(1, n, c) for n in ROWS} for c in contexts},
        "batches": {c: {f"{b} x {n}": steps.seconds(b, n, c) for b, n in BATCHES} for c in contexts},
        "shares": steps.shares(1, 512),
        "host": steps.host(1, 512),
        "bytes": {c: weight * shape.matrix_weights + c * shape.cache_bytes(2) for c in contexts},
        "prompt": PROMPT / steps.seconds(1, PROMPT, 0),
        "drafting": steps.drafting(512),
    }
    del steps
    torch.cuda.empty_cache()
    if type != "BF16":
        return result
    result["whole steps"] = whole_steps(shape)
    torch.cuda.empty_cache()
    if not quick:
        result["transformers"] = transformers_rates(shape)
        torch.cuda.empty_cache()
    return result


def table(name: str, result: dict[str, Any], rate: float) -> list[str]:
    """The lines of one shape."""
    lines = []
    for context, rows in result["rows"].items():
        one = rows[1]
        share = result["bytes"][context] / one / rate
        ratios = ", ".join(f"T({n})/T(1) {t / one:.3f}" for n, t in rows.items() if n > 1)
        lines.append(f"{name}, context {context}: one row {1e6 * one:,.0f} µs, {share:.2f} of the copy; {ratios}")
        batches = ", ".join(f"{size} {1e6 * t:,.0f} µs" for size, t in result["batches"][context].items())
        lines.append(f"  batches: {batches}")
    shares = sorted(result["shares"].items(), key=lambda item: -item[1])
    lines.append("  kernels: " + ", ".join(f"{kind} {1e6 * t:,.0f}" for kind, t in shares))
    lines.append("  host: " + ", ".join(f"{part} {1e6 * t:.0f} µs" for part, t in result["host"].items()))
    lines.append(
        f"  prompt of {PROMPT}: {result['prompt']:,.0f} tokens/s; {DRAFTED} drafts {1e6 * result['drafting']:,.0f} µs"
    )
    whole = result.get("whole steps", {})
    lines += [f"  whole step, {kind}: {1e6 * t:,.0f} µs" for kind, t in whole.items()]
    rates = result.get("transformers", {})
    lines += [f"  transformers, {kind}: {rate:.1f} tokens/s" for kind, rate in rates.items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="what to measure; default: both of Qwen3")
    parser.add_argument("--type", choices=TYPES, action="append", help="of matrices; default: all")
    parser.add_argument("--quick", action="store_true", help="one context, without transformers")
    parser.add_argument("--json", type=Path, help="where the result goes")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: torch sees no CUDA device", file=sys.stderr)
        sys.exit(1)
    texts = check_texts(QWEN3_06B)
    print(f"texts: {texts['different']} of {texts['texts']} differ with drafts", flush=True)
    if texts["different"]:
        sys.exit("no time is reported where texts differ")
    rate = copy_rate()
    facts = {
        "date": date.today().isoformat(), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "python": platform.python_version(), "copy": rate, "texts": texts,
    }  # fmt: skip
    shapes: dict[str, Any] = {}
    cases = itertools.product(args.shape or ("Qwen3-8B", "Qwen3-0.6B"), args.type or TYPES)
    for name, type in cases:
        shapes[f"{name} {type}"] = measure(SHAPES[name], type, args.quick)
        if args.json:
            args.json.write_text(json.dumps({**facts, "shapes": shapes}, indent=1))
    print(f"{facts['device']}, torch {facts['torch']}, copy {rate / 1e12:.2f} TB/s")
    for name, result in shapes.items():
        print("\n".join(table(name, result, rate)))


if __name__ == "__main__":
    main()
