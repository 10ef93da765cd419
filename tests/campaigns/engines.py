"""Is the text the engine's own? Prompts under every method on a target of another engine, against plain decoding there.

``python tests/campaigns/engines.py [-m zoo:pico] [--engine transformers] [--temperature 0.8] [--limit 13] [-n 128]``

The model of the zoo is written as a Hugging Face directory for transformers; llama.cpp reads its GGUF file. At
temperature 0 plain decoding is also compared with the engine's own loop. Every first difference is listed with the
distance of the target's two best scores there. Float32, one thread.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import process_time
from typing import Any

import torch
from spec_cli.prompts import Prompt, read
from spec_compare.difference import difference
from spec_compare.measure import Record, Terms, batches, lap, observed
from spec_compare.prompts import chosen
from spec_zoo import HERE, path

from spec_core import Run, Sampling, Target, load

METHODS: dict[str, list[tuple[str, Any]]] = {
    "zoo:pico": [
        ("ngram", "ngram"),
        ("suffix", "suffix"),
        ("recycling", "recycling"),
        ("draft-model", ("draft-model", {"file": "zoo:pico-draft"})),
        ("eagle3", ("eagle3", {"file": "zoo:pico-eagle3"})),
        ("dflash", ("dflash", {"file": "zoo:pico-dflash"})),
    ],
    "zoo:pico-hybrid": [
        ("ngram", "ngram"),
        ("suffix", "suffix"),
        ("recycling", "recycling"),
        ("draft-model", ("draft-model", {"file": "zoo:pico-draft"})),
        ("mtp", ("mtp", {"file": "zoo:pico-hybrid"})),
    ],
    "zoo:smollm2": [("ngram", "ngram"), ("suffix", "suffix"), ("recycling", "recycling")],
}


def loaded(engine: str, model: str) -> Target:
    """The target, with one thread."""
    if engine == "transformers":
        from tests.support.hugging_face import directory

        return load(f"transformers:{directory(model)}", dtype="float32", device="cpu", threads=1)
    return load(f"llamacpp:{path(model.removeprefix('zoo:'))}", threads=1)


def own_loop(engine: str, model: str, target: Any) -> Callable[[list[int], int], list[int]]:
    """The engine's own greedy generation: prompt, number of tokens -> tokens."""
    if engine == "transformers":

        def generate(tokens: list[int], n: int) -> list[int]:
            given = torch.tensor([tokens])
            options = {"max_new_tokens": n, "do_sample": False, "eos_token_id": sorted(target.info.eog)}
            found = target.model.generate(given, attention_mask=torch.ones_like(given), pad_token_id=0, **options)
            return found[0, len(tokens) :].tolist()

        return generate
    import llama_cpp

    made = llama_cpp.Llama(
        str(path(model.removeprefix("zoo:"))), n_ctx=2048, n_threads=1, flash_attn=True, verbose=False
    )

    def chosen(tokens: list[int], n: int) -> list[int]:
        found: list[int] = []
        for token in made.generate(tokens, temp=0.0, reset=True):
            found.append(token)
            if len(found) == n or token in target.info.eog:
                return found
        return found

    return chosen


def texts(run: Run, name: str, prompts: list[Prompt], terms: Terms) -> list[Record]:
    run, watch = observed(run)
    groups = batches(prompts, terms.batch)
    return [record for group in groups for record in lap(name, run, watch, group, terms, 0).records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="zoo:pico", choices=METHODS)
    parser.add_argument("--engine", default="transformers", choices=("transformers", "llamacpp"))
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=13, help="prompts of each of the four families")
    parser.add_argument("-n", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(1)
    target = loaded(args.engine, args.model)
    file = "prompts-chat.jsonl" if args.model == "zoo:smollm2" else "prompts-200.jsonl"
    prompts = chosen(read(HERE / file), file, limit=args.limit)
    given = {p.id: p.given for p in prompts}
    terms = Terms(args.n, Sampling(temperature=args.temperature), seed=1)
    began = process_time()
    plain = {r.prompt: r.tokens for r in texts(Run(target, max_sequences=1), "plain", prompts, terms)}
    seconds = process_time() - began
    tokens = sum(map(len, plain.values()))
    said = {"model": args.model, "engine": args.engine, "exact": target.info.exact, "temperature": args.temperature}
    print(json.dumps(said | {"method": "plain", "prompts": len(plain), "rate": round(tokens / seconds, 1)}), flush=True)
    if args.temperature == 0:
        print(json.dumps(said | own(args.engine, args.model, target, prompts, plain, args.n)), flush=True)
    for name, method in METHODS[args.model]:
        run, began = Run(target, [method], max_sequences=1), process_time()
        records = texts(run, name, prompts, terms)
        seconds = process_time() - began
        parted = [r for r in records if r.tokens != plain[r.prompt]]
        found = [difference(r, plain[r.prompt], given[r.prompt], target, terms) for r in parted]
        row = {
            "method": name,
            "prompts": len(records),
            "equal": len(records) - len(parted),
            "tokens_per_step": round(run.stats.report()["tokens_per_step"], 2),
            "rate": round(tokens / seconds, 1),
            "differences": [{"prompt": d.prompt, "position": d.position, "gap": d.gap} for d in found],
        }
        print(json.dumps(said | row), flush=True)


def own(
    engine: str, model: str, target: Any, prompts: list[Prompt], plain: dict[str, list[int]], n: int
) -> dict[str, Any]:
    """How many texts of the engine's own loop equal plain decoding, and its tokens per CPU second."""
    from spec_cli.prompt import tokens_of

    loop, began = own_loop(engine, model, target), process_time()
    found = {p.id: loop(tokens_of(p.given, target), n) for p in prompts}
    seconds = process_time() - began
    parted = [(name, first) for name in plain if (first := _first(found[name], plain[name])) is not None]
    rate = sum(map(len, found.values())) / seconds
    return {"method": "own loop", "equal": len(plain) - len(parted), "rate": round(rate, 1), "parted": parted}


def _first(one: list[int], two: list[int]) -> int | None:
    """The first position at which two texts differ; None if they are equal."""
    if one == two:
        return None
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


if __name__ == "__main__":
    main()
