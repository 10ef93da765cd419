"""Cost of a request that is off in a run with methods: its CPU time against that of a run without methods.

    python benchmarks/off.py -m pico --method ngram --method eagle3 --rounds 200

Both runs generate the same text in turns, in a random order of the two; the request of the run with methods has
``methods=()``. Prints the ratio of the CPU times, run without methods over the other, with a 90 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_core import Run, load

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n"


def seconds(run: Run, methods: tuple[str, ...] | None, tokens: int) -> tuple[float, list[int]]:
    began = time.process_time()
    result = run.generate(PROMPT, max_tokens=tokens, ignore_eos=True, methods=methods, reuse=False).result
    return time.process_time() - began, result.tokens


def interval(pairs: list[tuple[float, float]], rng: random.Random) -> tuple[float, float, float]:
    """Ratio of the medians of both, and its 5 and 95 % quantiles."""
    drawn = sorted(ratio(rng.choices(pairs, k=len(pairs))) for _ in range(1000))
    return ratio(pairs), drawn[50], drawn[949]


def ratio(pairs: list[tuple[float, float]]) -> float:
    """Ratio of the medians of both: a disturbed text does not count."""
    return statistics.median(one for one, _ in pairs) / statistics.median(other for _, other in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="pico")
    parser.add_argument("--method", action="append", default=None)
    parser.add_argument("--control", default="fixed")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    target, rng = load(f"zoo:{args.model}", threads=1), random.Random(0)
    alone = Run(target, max_sequences=1)
    beside = Run(target, args.method or ["ngram", "eagle3"], control=args.control, max_sequences=1)
    pairs = []
    for i in range(args.rounds + 2):
        timed = {}
        for name in rng.sample(["alone", "beside"], 2):
            timed[name] = seconds(*((alone, None) if name == "alone" else (beside, ())), args.tokens)
        if timed["alone"][1] != timed["beside"][1]:
            raise SystemExit("the texts differ")
        if i > 1:
            pairs.append((timed["alone"][0], timed["beside"][0]))
    ratio, low, high = interval(pairs, rng)
    print(f"{ratio:.4f} ({low:.4f}-{high:.4f}) of a run without methods, {args.rounds} texts each")


if __name__ == "__main__":
    main()
