"""Time of a forward of each family, against llama or qwen3moe of equal sizes, with random weights in Q8_0.

    taskset -c 1 python benchmarks/families.py [--depth 64] [--seconds 20]

T(n): milliseconds of CPU time of a forward of n rows, minimum of many, all families by turns, one thread. products:
the part of T(n) in products with weights. rest: everything else: norms, rotary, attention, gates, routing, layout.
Both come from `perf record` of such forwards, as shares of T(n); `perf` must be installed.
Equal sizes have equal products, so `products` shows whether a family's weights are multiplied as fast, and `rest` what
its own operations cost.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.caches import forward
from spec_core import load

SIZES: dict[str, Any] = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 8192,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 192,
    "intermediate_size": 192,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
}
"""Every row uses every expert: random routers of two families would read different numbers of them."""
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "mistral": ("llama", {"sliding_window": 4096}),
    "phi3": ("llama", {"original_max_position_embeddings": 4096}),
    "gemma2": ("llama", {"query_pre_attn_scalar": 64, "sliding_window": 4096}),
    "gemma3_text": ("llama", {"query_pre_attn_scalar": 64, "sliding_window": 512}),
    "qwen3_moe": ("qwen3_moe", EXPERTS),
    "gpt_oss": ("qwen3_moe", EXPERTS | {"sliding_window": 128}),
}
"""Name of the config class: the family of equal sizes, and sizes of its own."""
ROWS = (1, 8)


def directory(family: str, folder: Path) -> Path:
    """A model with random weights, without a tokenizer."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[family](**SIZES | FAMILIES[family][1])
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / family)
    return folder / family


def call_of(place: Path, rows: int, depth: int) -> Callable[[], object]:
    target = load(place, weights="q8_0", kernels="native", threads=1, dtype="float32")
    return forward(target, rows, depth)  # type: ignore[return-value]


def fastest(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Milliseconds, by turns."""
    best, end = dict.fromkeys(calls, float("inf")), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            begin = time.thread_time()
            call()
            best[name] = min(best[name], 1e3 * (time.thread_time() - begin))
    return best


def share_of_products(place: Path, rows: int, depth: int) -> float:
    """Share of products in the native code's time."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        once = [sys.executable, __file__, "--only", str(place), "--rows", str(rows), "--depth", str(depth)]
        command = ["perf", "record", "-q", "-D", "6000", "-o", str(data), *once]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report = ["perf", "report", "-i", str(data), "--stdio", "--sort", "dso,symbol"]
        out = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in out.splitlines() if "_native.abi3.so" in line]
    shares = [(float(words[0].rstrip("%")), words[words.index("[.]") + 1]) for words in lines]
    total = sum(share for share, _ in shares)
    return sum(share for share, symbol in shares if symbol.startswith(("Q8_0_", "F32_"))) / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        fastest({"": call_of(args.only, args.rows, args.depth)}, 12)
        return
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        places = {family: directory(family, Path(name)) for family in FAMILIES}
        for rows in ROWS:
            best = fastest({f: call_of(place, rows, args.depth) for f, place in places.items()}, args.seconds)
            shares = {family: share_of_products(place, rows, args.depth) for family, place in places.items()}
            print(f"{rows} rows, depth {args.depth}")
            print(f"{'family':12} {'T(n) ms':>8} {'ratio':>6} {'products':>9} {'ratio':>6} {'rest':>7}  of")
            for family, (base, _) in FAMILIES.items():
                products, theirs = (best[f] * shares[f] for f in (family, base))
                ratio, rest = best[family] / best[base], best[family] - products
                print(
                    f"{family:12} {best[family]:8.3f} {ratio:6.3f} {products:9.3f} {products / theirs:6.3f} "
                    f"{rest:7.3f}  {base}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
