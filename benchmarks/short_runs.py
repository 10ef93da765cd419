"""Short runs under ``control=auto``, where nothing is known at first: against plain decoding and every fixed length.

    python benchmarks/short_runs.py -m pico                     # ngram and suffix, one and four prompts at once
    python benchmarks/short_runs.py -m smollm2 --burn           # beside a process that never waits
    python benchmarks/short_runs.py --write                     # all of UNITS, into benchmarks/results/control.json

A run serves four prompts of 128 tokens, one at a time or all at once. Contenders take turns on each group of prompts,
in a rotating order; each has a new run in every repeat. The time is that of the thread on a processor. ``fixed`` is the
method's own settings; ``wrong`` proposes tokens that are never right, for 1,500 tokens. A method whose text differs
from plain decoding's gets no figure. Speedups are medians of repeats, against plain decoding in the same repeat.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from pathlib import Path
from time import thread_time
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_cli.main import COLLECT
from spec_commands.heap import frozen_heap

from benchmarks.control import WRONG, Wrong, busy, prompts
from benchmarks.support.results import save
from benchmarks.support.tables import heading, row
from spec_core import Run, Target, load

PROMPTS, TOKENS, WRONG_TOKENS = 4, 128, 375
PLAIN, FIXED, AUTO = "plain", "fixed", "auto"
LENGTHS = ("2", "4", "8", "16")
UNITS = [("pico", 0.0, False), ("pico", 0.0, True), ("smollm2", 0.0, False)]
"""Models, temperatures, and whether another process is busy."""


@attrs.define
class Contender:
    """A run. tokens, seconds: of all its texts after their first tokens. texts: what it wrote."""

    run: Run
    tokens: int = 0
    seconds: float = 0.0
    texts: list[list[int]] = attrs.field(factory=list)

    def serve(self, group: list[Any], tokens: int, temperature: float) -> None:
        run = self.run
        seqs = [
            run.submit(p.given, max_tokens=tokens, temperature=temperature, seed=p.seed(0), ignore_eos=True)
            for p in group
        ]
        while any(seq.output_position == 0 for seq in seqs):
            run.step()
        self.tokens -= sum(seq.output_position for seq in seqs)
        began = thread_time()
        while run.busy:
            run.step()
        self.seconds += thread_time() - began
        self.tokens += sum(seq.output_position for seq in seqs)
        self.texts += [run.take(seq).tokens for seq in seqs]


def make_run(target: Target, method: str, kind: str, batch: int) -> Run:
    methods: list[Any] = [] if kind == PLAIN else [(WRONG, Wrong())] if method == WRONG else [method]
    more: dict[str, Any] = {"draft_max": int(kind)} if kind.isdigit() else {}
    control = AUTO if kind == AUTO else FIXED
    return Run(target, methods, control=control, reuse=False, max_sequences=batch, **more)


def speedups(target: Target, model: str, method: str, batch: int, temperature: float, repeats: int) -> dict[str, float]:
    """{contender: median speedup}; the first repeat is not counted. Raises AssertionError where a text differs."""
    kinds = [PLAIN, AUTO] if method == WRONG else [PLAIN, FIXED, AUTO, *LENGTHS]
    chosen, tokens = prompts(model, 1)[:PROMPTS], WRONG_TOKENS if method == WRONG else TOKENS
    groups = [chosen[i : i + batch] for i in range(0, len(chosen), batch)]
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(repeats + 1):
        contenders = {kind: Contender(make_run(target, method, kind, batch)) for kind in kinds}
        for i, group in enumerate(groups):
            turn = (repeat + i) % len(kinds)
            for kind in kinds[turn:] + kinds[:turn]:
                contenders[kind].serve(group, tokens, temperature)
        plain = contenders[PLAIN]
        for kind, contender in contenders.items():
            assert contender.texts == plain.texts, f"{method} {kind}: another text"
            if repeat:
                ratios[kind].append(contender.tokens / contender.seconds * plain.seconds / plain.tokens)
            contender.run.close()
    return {kind: statistics.median(values) for kind, values in ratios.items()}


def line(target: Target, model: str, method: str, batch: int, temperature: float, repeats: int, burn: bool) -> str:
    with busy(burn), frozen_heap():
        by_kind = speedups(target, model, method, batch, temperature, repeats)
    fixed = {kind: speed for kind, speed in by_kind.items() if kind not in (PLAIN, AUTO)}
    best = max(fixed, key=lambda kind: fixed[kind], default=None)
    ends = ["", ""] if best is None else [f"{fixed[FIXED]:.2f}", f"{fixed[best]:.2f} ({best})"]
    share = [""] if best is None else [f"{by_kind[AUTO] / fixed[best]:.2f}"]
    about = [f"`zoo:{model}`", f"{temperature:g}", str(batch), "yes" if burn else "no", f"`{method}`"]
    return row([*about, f"{by_kind[AUTO]:.2f}", *ends, *share])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="pico")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--burn", action="store_true", help="beside a process that never waits")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="measure all of UNITS, and write the table")
    args = parser.parse_args()
    gc.set_threshold(COLLECT)  # as the program does
    columns = ["model", "temperature", "at once", "busy", "method", "auto", "own settings", "best fixed", "auto of it"]
    table = heading(columns)
    for model, temperature, burn in UNITS if args.write else [(args.model, args.temperature, args.burn)]:
        target = load(f"zoo:{model}", threads=1)
        repeats = args.repeats if model == "pico" else max(2, args.repeats // 4)
        for method in ("ngram", "suffix", WRONG):
            for batch in (1, PROMPTS):
                print(cells := line(target, model, method, batch, temperature, repeats, burn), flush=True)
                table.append(cells)
    if args.write:
        save("control", lambda name: table if name == "short runs" else None)


if __name__ == "__main__":
    main()
