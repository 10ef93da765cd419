"""Random requests with every block drafter, and with assistants, on random models, until the number is compared.

    python tests/campaigns/block_drafters.py [--requests 1000] [--seed 0]

Chains and trees on an attention model, on one with gated delta nets and on one with short convolutions. Prints what was
compared, and every request whose text is not plain decoding's; the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from tests.methods.block_fuzz import ASSISTED, CONTEXT, HEADS, Report, fuzz, fuzz_assistant

EACH = 8
"""Requests of a run."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = perf_counter()
    for head in (*HEADS, *ASSISTED):
        report, cases = Report(), list(itertools.product(CONTEXT, (False, True)))
        for turn in itertools.count():
            if report.counts["requests"] * len(ASSISTED if head in ASSISTED else HEADS) >= options.requests:
                break
            of, tree = cases[turn % len(cases)]
            if head in ASSISTED:
                fuzz_assistant(head, options.seed + turn, EACH, report)
            else:
                fuzz(head, of, tree, options.seed + turn, EACH, report)
        print(f"{head}: {', '.join(f'{n} {what}' for what, n in report.counts.items())}", flush=True)
        print("\n".join(report.differing) or f"all plain, after {perf_counter() - began:.0f} s", flush=True)
        if report.differing:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
