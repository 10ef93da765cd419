"""Time to the first token of a second turn, whose prompt has 1,500 tokens and 1,400 of them are in the prompt cache.

    OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.second_turn zoo:pico zoo:pico-hybrid zoo:smollm2

The first turn's prompt and its text have 1,400 tokens together. The ratio of the time with and without the cache is
taken in each of several interleaved rounds; the median is printed.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

from spec_core import Request, Run, load

CACHED, WHOLE, TEXT = 1400, 1500, 10


def tokens_of(target: object, seed: int, n: int) -> list[int]:
    """Token ids without an end of the text, different for every seed."""
    ends, tokens, state = target.info.eog, [], seed * 7919 + 1  # type: ignore[attr-defined]
    while len(tokens) < n:
        state = (state * 1103515245 + 12345) % (1 << 31)
        if (token := 100 + state % 2000) not in ends:
            tokens.append(token)
    return tokens


def first_token(run: Run, prompt: list[int], reuse: bool) -> tuple[float, int]:
    """Seconds to the first token, and how many rows were reused."""
    began = perf_counter()
    generation = run.generate(Request(prompt, max_tokens=1, ignore_eos=True, reuse=reuse))
    next(iter(generation))
    return perf_counter() - began, generation.result.reused


def rounds(model: str, methods: list[str], count: int, shared: bool) -> list[tuple[float, float, int]]:
    """(seconds with, seconds without, reused rows) of each round."""
    target, text_length = load(model), 0 if shared else TEXT
    seconds = []
    for seed in range(count + 1):
        with Run(target, methods) as run, Run(target, methods) as cold:
            prompt = tokens_of(target, seed, CACHED - text_length)
            text = run.generate(Request(prompt, max_tokens=TEXT + 1, ignore_eos=True)).result.tokens
            again = [*prompt, *text[:text_length], *tokens_of(target, 1000 + seed, WHOLE - CACHED)]
            warm, reused = first_token(run, again, reuse=True)
            seconds.append((warm, first_token(cold, again, reuse=False)[0], reused))
    return seconds[1:]  # the first warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--method", action="append", default=[], help="a method of the run; may be repeated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shared", action="store_true", help="the second prompt has the first one, not its text")
    args = parser.parse_args()
    for model in args.models:
        times = rounds(model, args.method, args.rounds, args.shared)
        ratio = median(warm / cold for warm, cold, _ in times)
        warm, cold = median(w for w, _, _ in times), median(c for _, c, _ in times)
        print(
            f"{model} {args.method}: {ratio:.3f} ({1000 * warm:.1f} of {1000 * cold:.1f} ms, {times[0][2]} rows reused)"
        )


if __name__ == "__main__":
    main()
