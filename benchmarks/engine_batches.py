"""Several sequences at once on a transformers target: one call of the model for all, against a call for each.

    python benchmarks/engine_batches.py -m zoo:pico [--sequences 1 4 16] [-n 64] [-k 5] [--rounds 3] -o FILE.jsonl
    python benchmarks/engine_batches.py --table FILE.jsonl

Greedy, float32, one pinned thread. The clock runs while all sequences decode: from the step after the last prompt to
the one in which the first sequence ends. Contenders follow one another in each round, and each round begins with the
next one of them. A line of FILE is one measurement: tokens, CPU seconds, and a digest of the texts. The table has
medians over rounds; a ratio is one call for all against a call for each of the same number of sequences, the median
over rounds. Texts are compared up to where both stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_commands.prompt import tokens_of
from spec_commands.prompts import read_prompt_file
from spec_compare.measuring.prompt_source import choose_prompts, shipped_file

from benchmarks.support import measuring
from benchmarks.support.tables import heading, row
from spec_core import Run, load
from tests.support.hugging_face import directory

METHODS: dict[str, list[Any]] = {"plain": [], "`ngram`": [("ngram", {"n_min": 1, "n_max": 2, "p_min": 0.0})]}
CALLS = {"one": True, "each": False}
"""Whether sequences share a call."""


def measure_batch(run: Run, prompts: list[list[int]], n: int) -> dict[str, Any]:
    """Tokens and CPU seconds while every prompt decodes; the tokens of each text."""
    seqs = [run.submit(prompt, max_tokens=n, ignore_eos=True) for prompt in prompts]
    while any(len(seq.tokens) == seq.prompt_len for seq in seqs):
        run.step()
    before, began = sum(len(seq.tokens) for seq in seqs), time.process_time()
    while all(seq.finish is None for seq in seqs):
        run.step()
    seconds = time.process_time() - began
    texts = [seq.tokens[seq.prompt_len :] for seq in seqs]
    tokens = sum(len(seq.tokens) for seq in seqs) - before
    for seq in seqs:
        run.cancel(seq)
    run.step()
    return {"tokens": tokens, "seconds": seconds, "texts": texts}


def measure(args: argparse.Namespace) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0)) if args.core is None else args.core})
    torch.set_num_threads(1)
    target: Any = load(f"transformers:{directory(args.model)}", dtype="float32", device="cpu", threads=1)
    if not target.batches:
        sys.exit(f"{args.model}: its sequences do not share calls")
    file = shipped_file([load(args.model, weights=False)])
    prompts = [
        tokens_of(p.given, target) for p in choose_prompts(read_prompt_file(file), file.name, limit=max(args.sequences))
    ]
    prompts = prompts[:: max(1, len(prompts) // max(args.sequences))]
    contenders = [(method, calls) for method in METHODS for calls in CALLS]
    for turn in range(args.rounds):
        for count in args.sequences:
            first = turn % len(contenders)
            for method, calls in contenders[first:] + contenders[:first]:
                target.batches = CALLS[calls]
                with Run(target, methods=METHODS[method], draft_max=args.k, reuse=False, max_sequences=count) as run:
                    measure_batch(run, [prompt[:8] for prompt in prompts[:count]], 4)
                    result = measure_batch(run, prompts[:count], args.n)
                about = {"model": args.model, "n": args.n, "k": args.k, "turn": turn, "sequences": count}
                with args.output.open("a") as out:
                    out.write(json.dumps(about | {"method": method, "calls": calls} | result) + "\n")


def table(results: Iterable[dict[str, Any]]) -> list[str]:
    """Markdown of everything in a file."""
    groups: dict[tuple[Any, ...], dict[str, dict[int, dict[str, Any]]]] = {}
    for x in results:
        about = (x["model"], x["n"], x["k"], x["method"], x["sequences"])
        groups.setdefault(about, {}).setdefault(x["calls"], {})[x["turn"]] = x
    cells = ["model", "tokens", "method", "sequences", "a call for each", "one call", "ratio", "equal texts"]
    shown = heading(cells)
    for (model, n, _, method, count), both in groups.items():
        turns = sorted(set.intersection(*(set(both[calls]) for calls in CALLS)))
        each, one = ([both[calls][t]["tokens"] / both[calls][t]["seconds"] for t in turns] for calls in ("each", "one"))
        ratio = statistics.median(b / a for a, b in zip(each, one, strict=True))
        equal = sum(_equal(*pair) for pair in zip(*(both[calls][turns[0]]["texts"] for calls in CALLS), strict=True))
        rates = f"{statistics.median(each):.1f}", f"{statistics.median(one):.1f}"
        shown.append(row([model.removeprefix("zoo:"), n, method, count, *rates, f"{ratio:.2f}", f"{equal} of {count}"]))
    return shown


def _equal(one: list[int], other: list[int]) -> bool:
    return all(a == b for a, b in zip(one, other, strict=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="zoo:pico", choices=("zoo:smollm2", "zoo:pico"))
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 16], help="how many at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("-k", type=int, default=5)
    measuring.run(parser, measure, table)


if __name__ == "__main__":
    main()
