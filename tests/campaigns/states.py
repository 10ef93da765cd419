"""Random requests with every method on models with recurrent layers, states held against fresh forwards.

    python tests/campaigns/states.py [--requests 1000] [--only kimi-linear] [--seed 0]

Prints what was compared, and every request whose text is not plain decoding's; the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from tests.methods.block_fuzz import Report
from tests.methods.state_fuzz import CASES, TARGETS, fuzz

EACH = 8
"""Requests of a run."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--only", choices=TARGETS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report, began = Report(), perf_counter()
    cases = [(name, of) for name, of in CASES if options.only in (None, of)]
    for turn in itertools.count():
        if report.counts["requests"] >= options.requests:
            break
        (name, of), seed = cases[turn % len(cases)], options.seed + turn // len(cases)
        fuzz(name, of, seed, EACH, report)
        print(f"{name} {of} seed {seed}: {report.counts['requests']} requests", file=sys.stderr, flush=True)
    print(f"{', '.join(f'{n} {what}' for what, n in report.counts.items())}, {perf_counter() - began:.0f} s")
    print("\n".join(report.differing) or "all texts plain, all states fresh")
    return int(bool(report.differing))


if __name__ == "__main__":
    sys.exit(main())
