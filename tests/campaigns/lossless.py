"""Is the text the target's own? 200 prompts under every method, batch and temperature against plain decoding.

``python tests/campaigns/lossless.py [-m MODEL] [--method A --method A+B] [--temperature 0.8] [--limit 50]``

Plain decoding runs each prompt alone; methods run them alone and five at a time, with the same seed per prompt, in
float32. Every first difference is listed with its position and with the distance of the target's two best scores.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from time import perf_counter

import attrs
import torch
from spec_commands.prompts import Prompt, read_prompt_file
from spec_compare.measuring.difference import difference
from spec_compare.measuring.measure import Contender, Record, RequestSettings, batches, lap, observe_run
from spec_compare.measuring.prompt_source import choose_prompts
from spec_zoo import HERE

from spec_core import Run, Sampling, Target, load

METHODS = ["ngram", "draft-model", "ngram+draft-model"]
LONG = 64


def texts(target: Target, methods: list[str], prompts: list[Prompt], terms: RequestSettings) -> Iterator[Record]:
    """One record per prompt, ``terms.batch`` of them at a time in one run."""
    contender = Contender("+".join(methods) or "plain", lambda: Run(target, methods=methods, max_sequences=terms.batch))
    run, watch = observe_run(contender.make())
    for group in batches(prompts, terms.batch):
        yield from lap(contender.name, run, watch, group, terms, 0).records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=50, help="prompts of each of the four families")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--method", action="append", help="a method, or a chain A+B; repeat")
    args = parser.parse_args()
    torch.set_num_threads(1)
    target = load(args.model)
    prompts = choose_prompts(read_prompt_file(HERE / "prompts-200.jsonl"), "prompts-200.jsonl", limit=args.limit)
    text = {p.id: p.given for p in prompts}
    terms = RequestSettings(args.n, Sampling(temperature=args.temperature), seed=1)
    began = perf_counter()
    plain = {r.prompt: r.tokens for r in texts(target, [], prompts, terms)}
    chains = {name: name.split("+") for name in args.method or METHODS}
    runs = [("plain", [], 5)] + [(name, methods, batch) for name, methods in chains.items() for batch in (1, 5)]
    for name, methods, batch in runs:
        records = list(texts(target, methods, prompts, attrs.evolve(terms, batch=batch)))
        parted = [r for r in records if r.tokens != plain[r.prompt]]
        differing = [difference(r, plain[r.prompt], text[r.prompt], target, terms) for r in parted]
        row = {
            "model": args.model,
            "temperature": args.temperature,
            "method": name,
            "batch": batch,
            "runs": len(records),
            "long": sum(len(r.tokens) >= LONG for r in records),
            "tokens": sum(len(r.tokens) for r in records),
            "equal": len(records) - len(parted),
            "differences": [{"prompt": d.prompt, "position": d.position, "gap": d.gap} for d in differing],
            "seconds": round(perf_counter() - began, 1),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
