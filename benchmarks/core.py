"""What the core itself costs per step: hooks, checks, verdict, commit; no model and no method.

Temperature 0, K = 4 drafts per sequence, vocabulary 4,096, logits given, one thread. A null target hands out the same
logits in every step; a null drafter proposes the same tokens. Half of them are accepted, so that every path is taken.

    python benchmarks/core.py [--json] [--profile] [--steps N] [--repeats N]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import platform
import pstats
import statistics
import sys
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
BUDGET = 100e-6
"""Seconds per step at batch 1 that the design allows on a laptop."""


class NullTarget:
    """Logits are given: row 0 wants token 1, row 1 token 2, and so on, with two of four drafts right."""

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
    """Proposes tokens 1, 2, 9, 9: two are right."""

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([1, 2, 9, 9]))


@attrs.define(eq=False)
class Idle:
    """Implements every hook and does nothing in it."""

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


def started(batch: int, idle: int) -> Run:
    """A run in which every sequence has begun to draft."""
    methods = [NullDrafter(), *((f"idle-{i}", Idle()) for i in range(idle))]
    run = Run(NullTarget(batch), methods, draft_max=K, max_sequences=batch)
    for i in range(batch):
        run.submit(Request([1] * PROMPT, max_tokens=CONTEXT - PROMPT, name=str(i)))
    for _ in range(50):
        run.step()
    return run


def gate(run: Run) -> None:
    """No number of a core that does something else: three tokens a step, two of them drafted."""
    events = run.step()
    sequences = len(run.running)
    assert [e.token for e in events] == [1, 2, 3] * sequences
    assert [e.source for e in events] == ["null-drafter", "null-drafter", None] * sequences


def seconds_per_step(run: Run, steps: int) -> float:
    began = perf_counter()
    for _ in range(steps):
        run.step()
    return (perf_counter() - began) / steps


def measure(batch: int, idle: int, steps: int, repeats: int) -> dict:
    """Median and best of the repeats, in microseconds."""
    run = started(batch, idle)
    gate(run)
    times = [seconds_per_step(run, steps) * 1e6 for _ in range(repeats)]
    return {"batch": batch, "idle_plugins": idle, "median": statistics.median(times), "best": min(times)}


def noise_cost(repeats: int = 200) -> dict[str, float]:
    """Temperature above 0, timed apart: noise for a whole vocabulary, and for 40 tokens of it."""
    ids = torch.arange(0, V, V // 40)
    cost = {}
    for name, what in (("whole vocabulary", V), ("40 tokens", ids)):
        began = perf_counter()
        for t in range(repeats):
            gumbel(1, t, what)
        cost[name] = (perf_counter() - began) / repeats * 1e6
    return cost


def profiled(batch: int, steps: int) -> None:
    run = started(batch, 0)
    profile = cProfile.Profile()
    profile.enable()
    seconds_per_step(run, steps)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.profile:
        return profiled(1, given.steps)
    rows = [measure(b, idle, given.steps, given.repeats) for b in (1, 8) for idle in (0, 8)]
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
    print("batch  idle plugins  µs per step, median  best")
    for row in rows:
        print(f"{row['batch']:5}  {row['idle_plugins']:12}  {row['median']:19.1f}  {row['best']:5.1f}")
    for name, cost in noise_cost().items():
        print(f"noise of {name}: {cost:.0f} µs a row")
    fits = rows[0]["median"] <= BUDGET * 1e6
    print(f"batch 1 {'meets' if fits else 'misses'} the budget of {BUDGET * 1e6:.0f} µs")
    return None


if __name__ == "__main__":
    main()
