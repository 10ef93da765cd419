"""A long campaign of fuzzers: 10,000 steps on a model, every text held against plain decoding.

    python tests/campaigns/fuzz.py                   # zoo:pico
    python tests/campaigns/fuzz.py toy --steps 1000  # the toy hybrid of spec_core.testing, three rollback strategies

Prints what was done and what went wrong on purpose; stops with the round and the sequence at the first text that is
not plain decoding's.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
from importlib import resources
from time import perf_counter

import torch

from spec_core import Target, load
from spec_core.testing import ToyRollback, ToyTarget, campaign

PROMPTS, LONGEST_PROMPT, LONGEST = 48, 40, 32


def prompts(target: Target, rng: random.Random) -> list[list[int]]:
    """Beginnings of the zoo's prompts in the target's tokens."""
    lines = resources.files("spec_zoo").joinpath("prompts.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in rng.sample(lines, min(PROMPTS, len(lines)))]
    return [target.tokenizer.encode(text)[: rng.randint(1, LONGEST_PROMPT)] for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="zoo:pico")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("spec_core").setLevel(logging.ERROR)  # plugins that are switched off are the point
    toy = options.model == "toy"
    target = ToyTarget() if toy else load(options.model)
    began = perf_counter()
    report = campaign(
        target,
        prompts(target, random.Random(options.seed)),
        options.steps,
        options.seed,
        LONGEST,
        rollback=lambda rng: ToyRollback(rng.choice(["snapshot", "replay", "checkpoint"])) if toy else None,
    )
    print(f"{options.model}, {target.info.dtype}, {target.info.device}, torch {torch.__version__}, seed {options.seed}")
    print(
        f"{report.steps} steps, {report.rounds} runs, {report.sequences} sequences, {report.tokens} tokens: all plain"
    )
    print(f"{report.drafted} tokens drafted, {report.accepted} accepted, in {perf_counter() - began:.0f} s")
    print(f"{report.faults.total()} faults: {', '.join(f'{n} {kind}' for kind, n in report.faults.most_common())}")


if __name__ == "__main__":
    main()
