"""Time of the core itself: of a step without model and method, and of choosing a token.

    python benchmarks/core.py [--json] [--profile CASE] [--steps N] [--repeats N]
    python benchmarks/core.py --against FOLDER     # another checkout, in turns with this one: medians of ratios
    python benchmarks/core.py choice [--json] [--vocab 49152 151936] [--repeats N] [--isa NAME]

A step is hooks, checks, verdict and commit: temperature 0, plain or with K = 4 drafts per sequence, vocabulary 4,096,
fixed logits, one thread. A null target returns the same logits in every step, a null drafter the same tokens; half of
them are accepted, so that every path is taken. choice: see support/choice.py.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import attrs
import torch

from spec_core import (
    Batch,
    Compat,
    Draft,
    Needs,
    Request,
    Run,
    Sampling,
    Sequence,
    Step,
    TargetInfo,
    TargetOutput,
    hookimpl,
)
from spec_core.sampling.noise import gumbel

V, K, PROMPT, CONTEXT = 4096, 4, 32, 1 << 20


class NullTarget:
    """Fixed logits: the best token of row 0 is 1, of row 1 it is 2, and so on, so two of four drafts are accepted."""

    tokenizer = None

    def __init__(self, batch: int) -> None:
        self.info = TargetInfo("null", vocab=V, width=1, layers=1, context=CONTEXT)
        row = torch.zeros(1 + K, V)
        row[range(1 + K), [1, 2, 3, 4, 5]] = 1.0
        self.drafting = TargetOutput(row.repeat(batch, 1))
        self.plain = TargetOutput(torch.cat([row[:1]] * batch))

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        return self.drafting if batch.parts[0].draft is not None else self.plain

    def open(self, seq: Sequence, want: int) -> int:
        return want

    def close(self, seq: Sequence) -> None:
        pass

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"})

    @hookimpl
    def rollback(self, step: Step) -> None:
        pass


@attrs.define(eq=False)
class NullDrafter:
    """Drafts the tokens 1, 2, 9, 9; two are accepted."""

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([1, 2, 9, 9]))


@attrs.define(eq=False)
class Idle:
    """Implements every hook with an empty body."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=())

    @hookimpl
    def accept(self, step: Step) -> None:
        pass

    @hookimpl
    def rollback(self, step: Step) -> None:
        pass

    @hookimpl
    def process(self, rows) -> None:
        pass


CASES = {
    "plain, batch 1": (1, False, 0),
    "plain, batch 8": (8, False, 0),
    "draft, batch 1": (1, True, 0),
    "draft, batch 1, 8 idle plugins": (1, True, 8),
    "draft, batch 8": (8, True, 0),
    "draft, batch 8, 8 idle plugins": (8, True, 8),
}
"""{name: (sequences, whether they draft, idle plugins)}"""


def started(case: str) -> Run:
    """A run in which every sequence has begun to generate."""
    batch, drafts, idle = CASES[case]
    methods = [NullDrafter()] if drafts else []
    run = Run(
        NullTarget(batch),
        [*methods, *((f"idle-{i}", Idle()) for i in range(idle))],
        draft_max=K,
        max_sequences=batch,
    )
    for i in range(batch):
        run.submit(Request([1] * PROMPT, max_tokens=CONTEXT - PROMPT, name=str(i)))
    for _ in range(50):
        run.step()
    gate(run, drafts)
    return run


def gate(run: Run, drafts: bool) -> None:
    """Checks the work that is timed: with drafts three tokens a step, two of them drafted."""
    tokens, sources = ([1, 2, 3], ["null-drafter", "null-drafter", None]) if drafts else ([1], [None])
    events = run.step()
    sequences = len(run.running)
    assert [e.token for e in events] == tokens * sequences
    assert [e.source for e in events] == sources * sequences


def seconds_per_step(run: Run, steps: int) -> float:
    began = perf_counter()
    for _ in range(steps):
        run.step()
    return (perf_counter() - began) / steps


def measure(case: str, steps: int, repeats: int) -> dict:
    """Median and best of the repeats, in microseconds."""
    run = started(case)
    times = [seconds_per_step(run, steps) * 1e6 for _ in range(repeats)]
    return {"case": case, "median": statistics.median(times), "best": min(times)}


def against(folder: Path, steps: int, rounds: int) -> list[dict]:
    """This script with both checkouts in turns, each in a process of its own: medians of the ratios."""
    found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    here = Path(__file__).parent.parent
    for i in range(rounds):
        sides = (folder, here) if i % 2 else (here, folder)
        rows = {side: timed(side, steps) for side in sides}
        for case in CASES:
            found[case].append((rows[here][case], rows[folder][case]))
    return [compared(case, pairs) for case, pairs in found.items()]


def compared(case: str, pairs: list[tuple[float, float]]) -> dict:
    mine, theirs = zip(*pairs, strict=True)
    ratios = [a / b for a, b in pairs]
    median = statistics.median
    return {"case": case, "median": median(mine), "theirs": median(theirs), "ratio": median(ratios)}


def timed(side: Path, steps: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--json", "--steps", str(steps), "--repeats", "5"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(side)}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {row["case"]: row["median"] for row in json.loads(done.stdout)["rows"]}


def noise_cost(repeats: int = 200) -> dict[str, float]:
    """Microseconds of noise for a whole vocabulary, and for 40 tokens of it, as for temperatures above 0."""
    ids = torch.arange(0, V, V // 40)
    cost = {}
    for name, what in (("whole vocabulary", V), ("40 tokens", ids)):
        began = perf_counter()
        for t in range(repeats):
            gumbel(1, t, what)
        cost[name] = (perf_counter() - began) / repeats * 1e6
    return cost


def profiled(case: str, steps: int) -> None:
    run = started(case)
    profile = cProfile.Profile()
    profile.enable()
    seconds_per_step(run, steps)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("steps", "choice"), default="steps")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, help="default: 9, of choice 15")
    parser.add_argument("--vocab", type=int, nargs="+", default=[49_152, 151_936], help="of choice")
    parser.add_argument("--isa", help="instruction set of choice; the default is the best")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", choices=CASES)
    parser.add_argument("--against", type=Path)
    given = parser.parse_args()
    if given.what == "choice":
        from support import choice

        return choice.show(given.vocab, given.repeats or 15, given.isa, given.json)
    given.repeats = given.repeats or 9
    torch.set_num_threads(1)
    if given.profile:
        return profiled(given.profile, given.steps)
    if given.against:
        print(f"{'case':32}{'µs per step':>12}{'theirs':>8}{'ratio':>7}")
        for row in against(given.against, given.steps, given.repeats):
            print(f"{row['case']:32}{row['median']:12.1f}{row['theirs']:8.1f}{row['ratio']:7.2f}")
        return None
    rows = [measure(case, given.steps, given.repeats) for case in CASES]
    circumstances = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": 1,
        "temperature": Sampling().temperature,
        "K": K,
        "V": V,
        "steps": given.steps,
        "repeats": given.repeats,
    }
    if given.json:
        print(json.dumps({"rows": rows, "noise": noise_cost(), **circumstances}, indent=2))
        return None
    print(" · ".join(f"{name} {value}" for name, value in circumstances.items()), file=sys.stderr)
    print(f"{'case':32}{'µs per step, median':>20}{'best':>7}")
    for row in rows:
        print(f"{row['case']:32}{row['median']:20.1f}{row['best']:7.1f}")
    for name, cost in noise_cost().items():
        print(f"noise of {name}: {cost:.0f} µs a row")
    return None


if __name__ == "__main__":
    main()
