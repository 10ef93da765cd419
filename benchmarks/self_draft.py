"""Speed of a self-draft with the first blocks of a model, and what its verification computes again.

    python benchmarks/support/random_gguf.py --size 0.6b --type Q8_0 FILE
    python benchmarks/self_draft.py FILE [--exit 7] [--drafts 1,2,3,4] [--tokens 40] [--repeats 3]

One thread; plain decoding before and after each run of `spec-layerskip`, whose drafts the rule `synthetic` accepts with
probability 0.8 each if the one before was. Times are processor time of the thread.
Then the time of a forward of 1 to 5 rows, and of its first blocks: the rows of drafts pass through them twice. Last the
time of a drafted token of the first blocks in times of a step, and their share of the weights that a step reads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "out_of_tree" / "spec-layerskip"))

from spec_layerskip import LayerSkip

from spec_core import Draft, Part, Run, Target, load
from spec_core.toolkit import forward, open_sequence, partial_forward

PROMPT = list(range(10, 74))
ACCEPTED = 0.8


def time_token(target: Target, tokens: int, methods: list[Any], rule: Any = None) -> float:
    """Seconds of a generated token, without the prompt."""
    with Run(target, methods, rule=rule, reuse=False) as run:
        events = run.generate(PROMPT, max_tokens=tokens, ignore_eos=True)
        next(events)
        began = thread_time()
        for _ in events:
            pass
        return (thread_time() - began) / (tokens - 1)


def measure_speed(target: Target, blocks: int, drafts: int, tokens: int) -> float:
    """How much faster than plain decoding, measured before and after."""
    rates = tuple(ACCEPTED ** (i + 1) for i in range(drafts))
    before = time_token(target, tokens, [])
    drafted = time_token(
        target, tokens, [LayerSkip(exit=blocks, draft_max=drafts, p_min=0.0)], ("synthetic", {"rates": rates})
    )
    return (before + time_token(target, tokens, [])) / 2 / drafted


def time_rows(target: Target, blocks: int) -> None:
    """Print the time of a forward of some rows, and of its first blocks without the output."""
    seq = open_sequence(target)
    forward(target, [Part(seq, 0, PROMPT, decides=True)])
    list.extend(seq.tokens, PROMPT)
    seq.evaluated = at = len(PROMPT)
    some, one = (partial_forward(target, range(n)) for n in (blocks, 1))
    for rows in range(1, 6):
        part = Part(seq, at, [5], decides=True, draft=Draft([7] * (rows - 1)) if rows > 1 else None)
        whole = shortest(lambda part=part: forward(target, [part]))
        first, block = (shortest(lambda p=p, n=rows: p.forward([(seq, at, [5] * n)])) for p in (some, one))
        again = (first - block) * blocks / (blocks - 1)
        print(f"{rows} rows: {whole:.1f} ms, first {blocks} blocks {again:.1f} ms", flush=True)


def time_blocks(target: Target) -> None:
    """Print the time of a drafted token of the first blocks over that of a step, and the share of weights it reads."""
    layers = target.info.layers
    seq = open_sequence(target)
    forward(target, [Part(seq, 0, PROMPT, decides=True)])
    list.extend(seq.tokens, PROMPT)
    seq.evaluated = at = len(PROMPT)
    read, table = target.info.weight_bytes, target.weights.nbytes("token_embd.weight")
    tied = target.weights.shape("output.weight") is None
    output = table / read if tied else target.weights.nbytes("output.weight") / (read - table)
    for blocks in (layers // 4, layers // 2, 3 * layers // 4, layers):
        part = partial_forward(target, range(blocks))
        times: list[list[float]] = [[], []]
        for _ in range(15):
            for calls, each in zip(
                times,
                (lambda: forward(target, [Part(seq, at, [5], True)]), lambda p=part: p.forward([(seq, at, [5])])),
                strict=True,
            ):
                calls.append(shortest(each, 1))
        whole, first = map(min, times)
        share = blocks / layers * (1 - output) + output
        time = first / whole
        print(f"first {blocks} of {layers}: {time:.3f} of a step, weights {share:.3f}: {time / share:.2f}", flush=True)


def shortest(call: Callable[[], object], repeats: int = 7) -> float:
    """Milliseconds of the shortest of some calls."""
    times = []
    for _ in range(repeats):
        began = thread_time()
        call()
        times.append(thread_time() - began)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--exit", type=int, default=7)
    parser.add_argument("--drafts", default="1,2,3,4")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = load(options.file, threads=1)
    for drafts in map(int, options.drafts.split(",")):
        speeds = [measure_speed(target, options.exit, drafts, options.tokens) for _ in range(options.repeats)]
        print(f"drafts of {drafts}: {', '.join(f'{speed:.2f}' for speed in speeds)} × plain decoding", flush=True)
    time_rows(target, options.exit)
    time_blocks(target)


if __name__ == "__main__":
    main()
