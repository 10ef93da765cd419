"""Time of restoring a gated delta state: strategies of ``gdn-rollback`` on four layers of the 9B shape.

Random weights of the real shape (3 gated delta layers and 1 attention layer of width 4,096), random drafts of n tokens,
each accepted at a given rate if the one before it was, by the rule ``synthetic``: the text is meaningless, the work is
that of a real step. Strategies take turns in every repeat. ``separate forward`` is done as in other systems: a copy of
the state before verification, and a separate forward of the accepted tokens after every rejection.

    python benchmarks/rollback.py [--threads N] [--steps N] [--repeats N] [--drafts 1,3,7] [--rates 0.3] [--out FILE]
    python benchmarks/rollback.py --verify [--write]    # eight rows verified, four taken back, beside plain steps

With ``--verify`` also four layers of Kimi Linear's shape (3 with KDA, 1 with latent attention, dense feed-forward), and
four of Granite 4 H Tiny's (3 with Mamba-2, 1 with attention, a dense feed-forward layer as wide as its used experts).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import attrs
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from spec_kernels.model.shapes import DeltaShape, LatentShape, ScanShape
from spec_kernels.model.source import bytes_of
from spec_targets.architectures.config import Config
from spec_targets.runtime.checkpoint import Checkpoint
from spec_targets.runtime.load import make_target
from spec_targets.runtime.torch_target import TorchTarget
from spec_targets.runtime.weights import trunk_shapes

from benchmarks.support.results import save
from benchmarks.support.tables import heading, row
from spec_core import Compat, Draft, DraftStep, Needs, RollbackStep, Rows, Run, Step, hookimpl
from spec_core import Sequence as TextSequence
from spec_core.contract.batch import Part
from spec_core.contract.layout import lay_out_batch

VOCAB, PROMPT = 1024, 64
DELTA = DeltaShape(key_heads=16, value_heads=32, key_dim=128, value_dim=128, kernel=4, tiled=True)
SHAPE = Config(
    arch="qwen35",
    name="4 layers of 9B, random",
    layers=4,
    width=4096,
    heads=16,
    kv_heads=4,
    head=256,
    ff=12288,
    vocab=VOCAB,
    context=8192,
    eps=1e-6,
    rope_base=1e7,
    rotary_dim=64,
    delta=DELTA,
    recurrent=frozenset({0, 1, 2}),
)
KIMI = Config(
    arch="kimi-linear",
    name="4 layers of Kimi Linear, random",
    layers=4,
    width=2304,
    heads=32,
    kv_heads=1,
    head=576,
    ff=9216,
    vocab=VOCAB,
    context=8192,
    eps=1e-5,
    rope_base=1e4,
    rotary_dim=64,
    dense=4,
    delta=DeltaShape(key_heads=32, value_heads=32, key_dim=128, value_dim=128, kernel=4, by_channel=True),
    latent=LatentShape(rank=512, shared=64, plain=128, value=128),
    recurrent=frozenset({0, 1, 2}),
)
GRANITE = Config(
    arch="granitehybrid",
    name="4 layers of Granite 4 H Tiny, random",
    layers=4,
    width=1536,
    heads=12,
    kv_heads=4,
    head=128,
    ff=4096,
    vocab=VOCAB,
    context=8192,
    eps=1e-5,
    rope_base=1e4,
    rotary_dim=128,
    unrotated=True,
    scan=ScanShape(key_heads=1, value_heads=48, key_dim=128, value_dim=64, kernel=4),
    recurrent=frozenset({0, 1, 2}),
)
STRATEGIES = ("snapshot", "replay", "checkpoint", "auto", "separate forward")
VERIFIED = {"gated delta net (Qwen3.5-9B)": SHAPE, "KDA (Kimi Linear)": KIMI, "Mamba-2 (Granite 4 H Tiny)": GRANITE}
DRAFTED, ACCEPTED = 7, (1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
"""Drafts of a verified step, which has one row more, and chances that the first 1, 2, ... are accepted: three are, so
that four rows are kept and four taken back."""


class RandomWeights:
    """Tensors of the right shapes: small random matrices, norms of 1, decays as large as in a trained model."""

    where, interleaved = "random", False

    def __init__(self, config: Config) -> None:
        self.shapes = trunk_shapes(config, self)
        self.rng = torch.Generator().manual_seed(0)

    def names(self) -> list[str]:
        return list(self.shapes)

    def shape(self, name: str) -> tuple[int, ...] | None:
        return getattr(self, "shapes", {}).get(name)

    def load(self, name: str) -> torch.Tensor:
        shape = self.shapes[name]
        if name.endswith("ssm_a"):
            return -torch.rand(shape, generator=self.rng)
        if len(shape) == 1:
            return torch.ones(shape) if "norm" in name else torch.zeros(shape)
        return torch.empty(shape).normal_(std=shape[1] ** -0.5, generator=self.rng)

    def type(self, name: str) -> str:
        return "F32"

    def nbytes(self, name: str) -> int:
        return 4 * math.prod(self.shapes[name])

    def blocks(self, name: str) -> torch.Tensor:
        return bytes_of(self.load(name))


def made_target(config: Config = SHAPE) -> TorchTarget:
    return make_target(Checkpoint(config, RandomWeights(config)), device="cpu")


@attrs.define(eq=False)
class Random:
    """Drafts n tokens in every step."""

    n: int
    rng: torch.Generator = attrs.field(factory=lambda: torch.Generator().manual_seed(1))

    @hookimpl
    def draft(self, step: DraftStep) -> None:
        for seq, budget in step.undrafted:
            step.propose(seq, Draft(torch.randint(VOCAB, (min(self.n, budget),), generator=self.rng)))


@attrs.define(eq=False)
class SeparateForward:
    """Checkpoint and replay as other systems do it.

    The state is copied before verification. If a draft was rejected, the copy is restored, and the pending token and
    the accepted drafts are evaluated again in one forward of the whole model.
    """

    copies: dict[TextSequence, Any] = attrs.field(factory=dict)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"recurrent"}, needs=Needs(trace="states"), drafts=())

    @hookimpl
    def process(self, rows: Rows) -> None:
        self.copies = {seq: rows.step.target.checkpoint(seq) for seq in rows.spans}

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        for seq, verdict in step.verdicts.items():
            part, state = step.part(seq), seq.slot.state.recurrent
            if len(verdict.path) < part.drafted:
                state.put(self.copies[seq])
                tokens = [*part.pending, *(part.draft.ids[i] for i in verdict.path)]
                again = Step(step.target, {})
                again.add(Part(seq, part.start, tokens, decides=True))
                step.target.forward(lay_out_batch(again, Needs(), "cpu"), Needs())
            elif verdict.path:
                state.pick(step.output.trace.places[step.kept_rows(seq)[-1]])


def owner(strategy: str, n: int) -> Any:
    if strategy == "separate forward":
        return SeparateForward()
    return ("gdn-rollback", {"strategy": strategy, "n": n})


def steps(
    target: TorchTarget, strategy: str, n: int, rates: Sequence[float], count: int, seed: int
) -> Iterator[dict[str, float]]:
    """Seconds, tokens and memory of each of ``count`` steps after a prompt; the first step is a warm-up.

    rates: the chance that the first 1, 2, ... drafts are accepted.
    """
    rule = ("synthetic", {"rates": list(rates), "seed": seed}) if n else None
    owned = owner(strategy, n) if n else None
    run = Run(target, [Random(n)] if n else [], rule=rule, rollback=owned, draft_max=n or 1, max_sequences=1)
    seen: list[Step] = []
    run.observe(seen.append)
    seq: TextSequence = run.submit(list(range(PROMPT)), max_tokens=4000, ignore_eos=True)
    while len(seen) < 2:
        run.step()
    for _ in range(count):
        began, had = perf_counter(), len(seq.tokens)
        run.step()
        whole, step = perf_counter() - began, seen[-1]
        rollback = sum(s for name, s in step.seconds.items() if name.startswith("rollback") and "target" not in name)
        yield {"step": whole, "rollback": rollback, "tokens": len(seq.tokens) - had, "extra": extra(target, step, seq)}
    run.cancel(seq)
    run.step()
    target.close(seq)


def extra(target: TorchTarget, step: Step, seq: TextSequence) -> int:
    """Bytes that rollback needs beside the committed state."""
    trace = step.output.trace
    if trace is None:
        return 0
    place = target.pool.layers * target.pool.shape.state_bytes
    return trace.nbytes + len(trace.places) * place


def cell(target: TorchTarget, n: int, rate: float, count: int, repeats: int) -> dict[str, Any]:
    """All strategies at one draft length and acceptance rate, in turns, compared by seconds per token."""
    laps: dict[str, list[list[dict[str, float]]]] = {s: [] for s in STRATEGIES}
    for repeat in range(repeats):
        for strategy in STRATEGIES:
            rates = [rate ** (i + 1) for i in range(n)]
            laps[strategy].append(list(steps(target, strategy, n, rates, count, repeat)))
    return {strategy: summary(own_laps) for strategy, own_laps in laps.items()}


def verify_lines(layers: str, count: int, repeats: int) -> Iterator[str]:
    """Rows of the table of one kind of layers: strategies and plain steps take turns; the fastest of all steps, which
    other programs disturb least."""
    target, laps = made_target(VERIFIED[layers]), {name: [] for name in ("plain", *STRATEGIES)}
    for repeat in range(repeats):
        for name in laps:
            n = 0 if name == "plain" else DRAFTED
            laps[name] += steps(target, name, n, ACCEPTED[:n], count, repeat)
    plain = min(step["step"] for step in laps.pop("plain"))
    for strategy, own in laps.items():
        fastest, back = (min(step[part] for step in own) for part in ("step", "rollback"))
        tokens = statistics.mean(step["tokens"] for step in own)
        figures = [f"{1e3 * plain:.1f}", f"{1e3 * fastest:.1f}", f"{fastest / plain:.2f}", f"{1e3 * back:.2f}"]
        figures += [f"{max(step['extra'] for step in own) / 2**20:.1f}", f"{tokens * plain / fastest:.2f}"]
        yield row([layers, strategy if "separate" in strategy else f"`{strategy}`", *figures])


def summary(laps: list[list[dict[str, float]]]) -> dict[str, Any]:
    """Medians over all steps. spread: relative difference between the medians of the repeats."""
    every = [s for lap in laps for s in lap]
    each = [statistics.median(s["step"] for s in lap) for lap in laps]
    whole = sum(s["step"] for s in every)
    return {
        "step_ms": 1e3 * statistics.median(s["step"] for s in every),
        "rollback_ms": 1e3 * statistics.mean(s["rollback"] for s in every),
        "rollback_share": sum(s["rollback"] for s in every) / whole,
        "tokens_per_second": sum(s["tokens"] for s in every) / whole,
        "extra_mib": max(s["extra"] for s in every) / 2**20,
        "spread": max(each) / min(each) - 1,
    }


COLUMNS = ("n", "accepted", "strategy", "step ms", "rollback ms", "share", "tokens/s", "of best", "extra MiB", "spread")


def table(results: dict[str, Any]) -> str:
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    for key, cells in results.items():
        best = max(c["tokens_per_second"] for c in cells.values())
        rows += [[*key.split("/"), strategy, *figures(c, best)] for strategy, c in cells.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def figures(c: dict[str, Any], best: float) -> list[str]:
    rate = c["tokens_per_second"]
    times = [f"{c['step_ms']:.0f}", f"{c['rollback_ms']:.1f}", f"{c['rollback_share']:.1%}"]
    return [*times, f"{rate:.2f}", f"{rate / best:.2f}", f"{c['extra_mib']:.1f}", f"{c['spread']:.1%}"]


VERIFY_COLUMNS = ["layers", "strategy", "plain step, ms", "step of 8 rows, ms", "of plain"]
VERIFY_COLUMNS += ["rollback, ms", "traces, MiB", "tokens per second of plain"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--drafts", default="1,3,7,15,63")
    parser.add_argument("--rates", default="0.3,0.6,0.9")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--verify", action="store_true", help="eight rows verified and four taken back, of both kinds")
    parser.add_argument("--write", action="store_true", help="with --verify: benchmarks/results/rollback-kda.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.verify:
        lines = heading(VERIFY_COLUMNS)
        for layers in VERIFIED:
            lines += verify_lines(layers, args.steps, args.repeats)
        print("\n".join(lines))
        if args.write:
            save("rollback-kda", lambda name: lines)
        return
    target, cells = made_target(), {}
    for n in map(int, args.drafts.split(",")):
        for rate in map(float, args.rates.split(",")):
            cells[f"{n}/{rate}"] = cell(target, n, rate, args.steps, args.repeats)
            print(f"n {n}, accepted {rate}: done", file=sys.stderr, flush=True)
    print(table(cells))
    if args.out:
        args.out.write_text(json.dumps({"threads": args.threads, "torch": torch.__version__, "cells": cells}, indent=1))


if __name__ == "__main__":
    main()
