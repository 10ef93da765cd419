"""Is every text of the server that of a run alone? Requests with random times, lengths, seeds, methods and cancels.

``python tests/campaigns/serve.py [-m MODEL ...] [--requests 300] [--seed 1] [--slots 4] [--cache-tokens 600]``

Concurrency is 1, 2, 4, 8 and 16 in turn. A finished text must be that of a run alone with its seed, one whose client
left must begin it. At the end no slot may be taken. The exit code is 1 where a text is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from spec_core import load
from tests.support.served import answers, requests, serving, wrong

METHODS = ["ngram", "draft-model", "suffix", "recycling"]
CONCURRENCY = (1, 2, 4, 8, 16)


def campaign(model: str, count: int, seed: int, slots: int, cached: int) -> dict[str, Any]:
    """Requests in equal parts at every concurrency; what was found, and how many."""
    target, began, failed, left = load(model), perf_counter(), [], 0
    with serving(target, METHODS, max_sequences=slots, cache_tokens=cached) as served:
        for at, concurrency in enumerate(CONCURRENCY):
            many = requests(seed * 100 + at, count // len(CONCURRENCY), METHODS)
            got = answers(served.url, many, concurrency)
            failed += wrong(target, many, got)
            left += sum(g.finish is None for g in got)
        reused, counts = served.engine.counters.cached, served.engine.counters
        drafted = sum(m.accepted for m in counts.methods.values())
    leaked = len(served.engine.jobs) + len(served.engine.open)
    return {
        "model": model,
        "requests": count // len(CONCURRENCY) * len(CONCURRENCY),
        "clients_that_left": left,
        "accepted_drafts": drafted,
        "reused_rows": reused,
        "wrong": failed,
        "slots_leaked": leaked,
        "seconds": round(perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", action="append")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--cache-tokens", type=int, default=600, help="so few that rows of ended texts are dropped")
    args = parser.parse_args()
    bad = False
    for model in args.model or ["zoo:pico", "zoo:pico-hybrid"]:
        result = campaign(model, args.requests, args.seed, args.slots, args.cache_tokens)
        print(json.dumps(result, ensure_ascii=False))
        bad |= bool(result["wrong"] or result["slots_leaked"])
    sys.exit(bad)


if __name__ == "__main__":
    main()
