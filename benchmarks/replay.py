"""``control=auto`` over recorded texts, on a simulated clock: without the noise of a measurement, and in parts.

    python benchmarks/replay.py -m pico --temperature 0.8               # records once, in build/replay
    python benchmarks/replay.py -m pico --orders 24 ngram               # only this list of methods
    python benchmarks/replay.py --write                                 # write the table of docs/control.md

Real are the loop, the controller, ``ngram`` and ``suffix``. Looked up are the target's tokens, the drafts of methods
with a model, and what everything takes: medians of real runs. A forward takes that times a normal factor, whose
standard deviation is ``--noise``. Each order of the prompts is a run of its own.
Speedup over plain decoding on the same clock: of the faster of the default settings and ``draft_max=8``; of ``auto``,
mean and standard error over the orders; and of ``auto`` where plans take no time, where a method takes none in a step
in which it offers nothing, both, where the ledger has 500 plain steps in the place of 20, and all of that.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import spec_control.auto
from spec_control.auto import Auto
from spec_methods.ngram import Ngram
from spec_methods.suffix import Suffix

import spec_core.loop.guard
import spec_core.loop.run
from benchmarks.comparison import MODELS
from benchmarks.control import PAGE, TOKENS, prompts
from benchmarks.support.recorded import LONGEST, LOOKUPS, Recorder, record_methods
from benchmarks.support.tables import ROOT, heading, row, write
from spec_core import Compat, Draft, Needs, Run, StashKey, Step, TargetInfo, TargetOutput, hookimpl, load
from spec_core.toolkit import AcceptanceEstimate

KEPT = ROOT / "build" / "replay"
CHAINS = {
    "pico": ["ngram", "suffix", "draft-model", "ngram+draft-model"],
    "pico-hybrid": ["ngram", "draft-model", "mtp", "ngram+mtp"],
    "smollm2": ["ngram", "suffix"],
}
UNITS = [("smollm2", 0.0), ("smollm2", 0.8), ("pico", 0.0), ("pico", 0.8), ("pico-hybrid", 0.8)]
"""Models and temperatures of the table."""
USUAL = {"draft-model": 0.35}
"""Prices without a controller, where they are not 0.3."""
LARGE_BALANCE = 500.0
"""Plain steps of a ledger that is hardly ever used up."""
PROMPT_ROW = 0.1
"""Time of a row of a prompt, as a share of a forward of one row; no figure depends on it."""


@attrs.define
class Clock:
    """Seconds of the simulation. noise: standard deviation of the factor of a forward."""

    now: float = 0.0
    noise: float = 0.0
    rng: random.Random = attrs.field(factory=random.Random)

    def __call__(self) -> float:
        return self.now

    def take(self, seconds: float) -> None:
        self.now += seconds

    def forward(self, seconds: float) -> None:
        self.now += seconds * max(0.5, self.rng.gauss(1.0, self.noise))


@attrs.define(eq=False)
class Replayed:
    """A target that knows which text it is asked for: the row of each position is sure of the next token."""

    record: dict[str, Any]
    clock: Clock
    text: list[int] = attrs.field(factory=list)
    info: TargetInfo = attrs.field(init=False)
    tokenizer: None = None

    def __attrs_post_init__(self) -> None:
        self.info = TargetInfo("replayed", self.record["vocab"], width=1, layers=1, context=1 << 20, exact="rows")

    @hookimpl
    def compat(self) -> Compat:
        return Compat(owns={"attention"})

    @hookimpl
    def rollback(self, step: Step) -> None:
        self.clock.take(self.record["host"])

    def forward(self, batch: Any, needs: Needs) -> TargetOutput:
        [part], times = batch.parts, self.record["forward"]
        positions = batch.positions.tolist()
        asked = positions[part.first_draft_row - 1 : part.first_draft_row + part.drafted] if part.decides else []
        logits = torch.zeros(len(asked), self.info.vocab)
        for i, position in enumerate(asked):
            if position + 1 < len(self.text):
                logits[i, self.text[position + 1]] = 1.0
        rows = len(positions)
        self.clock.forward(times[rows - 1] if rows <= len(times) else PROMPT_ROW * rows * times[0])
        return TargetOutput(logits)

    def open(self, seq: Any, want: int) -> int:
        seq.slot.state = self.text
        return 0

    def close(self, seq: Any) -> None:
        pass

    def checkpoint(self, seq: Any) -> None:
        return None

    def restore(self, seq: Any, position: int) -> None:
        pass

    def tensor(self, name: str) -> torch.Tensor:
        raise KeyError(name)


@attrs.define(eq=False)
class Recalled:
    """A method whose drafts were recorded; it stops by the price as ``TokenDrafter`` does.

    usual: the price without a controller. at: number of the text. estimate: of the present text.
    """

    record: dict[str, Any]
    usual: float
    at: int = 0
    estimate: StashKey[tuple[int, AcceptanceEstimate]] = attrs.field(factory=StashKey)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, forwards=lambda k: k)

    @hookimpl
    def draft(self, step: Step) -> None:
        for seq, budget in step.undrafted:
            position = len(seq.tokens) - seq.prompt_len - 1
            drafts = self.record["drafts"][self.at]
            ids, chances = drafts[position] if position < len(drafts) else ([], [])
            number, estimate = seq.stash.get(self.estimate, (-1, None))
            if number != seq.number:
                estimate = AcceptanceEstimate()
                seq.stash[self.estimate] = seq.number, estimate
            price, survival, length = step.price(seq, None, self.usual), 1.0, 0
            while length < min(budget, len(ids)) and survival >= price:
                survival *= chances[length] * estimate.value
                length += 1
            if length:
                step.propose(seq, Draft(ids[:length], confidence=chances[:length]))

    @hookimpl
    def rollback(self, step: Step) -> None:
        for seq, part in step.draft_results:
            seq.stash[self.estimate][1].learn(part.drafted, len(part.full_verdict.path))


def time_method(cls: type, record: dict[str, Any], clock: Clock, free: bool, *given: Any) -> Any:
    """A method of this class whose hooks take what was recorded. free: nothing where it offers nothing."""

    class Timed(cls):
        begun = -1

        @hookimpl
        def draft(self, step: Step) -> None:
            cls.draft(self, step)
            part = step.parts[0]
            if part.drafted and part.source == step.plugin:
                begins = part.seq.number != self.begun
                self.begun = part.seq.number
                clock.take(
                    record["first"] + record["each"] * part.drafted + begins * record["row"] * part.seq.prompt_len
                )
            elif not free:
                clock.take(record["idle"])

    return Timed(*given)


@attrs.frozen
class Case:
    """Whether plans and asking take time, and what is in the ledger."""

    plans: bool = True
    asking: bool = True
    balance: float = 20.0


@attrs.define
class Replay:
    """A model's record. There is one at a time: the loop and the controller read its clock."""

    record: dict[str, Any]
    noise: float
    clock: Clock = attrs.field(factory=Clock)

    def __attrs_post_init__(self) -> None:
        spec_core.loop.run.perf_counter = spec_core.loop.guard.perf_counter = self.clock
        spec_control.auto.preemptions = lambda: 0

    def speedup(
        self, chain: str, order: list[int], seed: int, setting: int | None = None, case: Case = Case()
    ) -> float:
        """setting: ``auto`` if None, or the longest draft of a run without it."""
        self.clock.noise, self.clock.rng = self.noise, random.Random(seed)
        texts, target = self.record["texts"], Replayed(self.record, self.clock)
        methods = [(name, self._method(name, not case.asking)) for name in chain.split("+")]
        more: dict[str, Any] = {"control": "fixed", "draft_max": setting} if setting else {}
        named = methods if setting else [*methods, ("auto", self._controller(case))]
        run = Run(target, methods=named, reuse=False, max_sequences=1, **more)
        tokens, spent, began = 0, 0.0, [0.0]
        run.observe(lambda step: began.append(self.clock.now))
        for at in order:
            target.text = texts[at]["prompt"] + texts[at]["ids"]
            for _, method in methods:
                method.at = at
            began.clear()
            result = run.generate(texts[at]["prompt"], max_tokens=len(texts[at]["ids"])).result
            assert result.tokens == texts[at]["ids"]
            tokens, spent = tokens + len(result.tokens) - 1, spent + self.clock.now - began[0]
        return tokens * (self.record["forward"][0] + self.record["host"]) / spent

    def _method(self, name: str, free: bool) -> Any:
        recorded_method = self.record["methods"][name]
        if name in LOOKUPS:
            return time_method({"ngram": Ngram, "suffix": Suffix}[name], recorded_method, self.clock, free)
        return time_method(Recalled, recorded_method, self.clock, free, recorded_method, USUAL.get(name, 0.3))

    def _controller(self, case: Case) -> Auto:
        clock, (once, each) = self.clock, self.record["plan"]

        class Planning(Auto):
            @hookimpl
            def draft(self, step: Step) -> None:
                passed = len(step.records)
                Auto.draft(self, step)
                if case.plans:
                    clock.take(once + each * passed)

        return Planning(balance=case.balance)


CASES = {
    "as it is": Case(),
    "plans are free": Case(plans=False),
    "asking is free": Case(asking=False),
    "both are": Case(plans=False, asking=False),
    "500 in the ledger": Case(balance=LARGE_BALANCE),
    "all of that": Case(plans=False, asking=False, balance=LARGE_BALANCE),
}


def figures(replay: Replay, chain: str, orders: int) -> list[str]:
    """Cells of a line: the best of two fixed settings, and of ``auto`` the mean and standard error in every case."""
    texts = range(len(replay.record["texts"]))
    best = max(replay.speedup(chain, [*texts], 0, setting) for setting in (LONGEST, 8))
    cells = [f"`{chain}`", f"{best:.2f}"]
    for case in CASES.values():
        mixed = (random.Random(seed).sample(texts, len(texts)) for seed in range(orders))
        speedups = [replay.speedup(chain, order, seed, case=case) for seed, order in enumerate(mixed)]
        error = statistics.stdev(speedups) / len(speedups) ** 0.5 if len(speedups) > 1 else 0.0
        cells.append(f"{statistics.mean(speedups):.2f} ± {error:.2f}")
    return cells


def lines(model: str, temperature: float, orders: int, noise: float, chains: list[str]) -> Iterator[str]:
    replay = Replay(record_of(model, temperature, CHAINS[model]), noise)
    for chain in chains or CHAINS[model]:
        yield row([f"`zoo:{model}`", f"{temperature:g}", *figures(replay, chain, orders)])


def record_of(model: str, temperature: float, chains: list[str]) -> dict[str, Any]:
    """Kept in a file, and recorded where there is none."""
    path = KEPT / f"{model}-{temperature:g}.json"
    if not path.exists():
        methods = dict.fromkeys(name for chain in chains for name in chain.split("+"))
        target = load(f"zoo:{model}", threads=1)
        record = record_methods(methods, Recorder(target, prompts(model, 10), TOKENS, temperature))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", choices=MODELS, default="pico")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--orders", type=int, default=12, help="of the prompts, each a run of its own")
    parser.add_argument("--noise", type=float, default=0.05, help="standard deviation of the time of a forward")
    parser.add_argument("--write", action="store_true", help="replay all of UNITS, and write the table")
    parser.add_argument("chains", nargs="*", help="lists of methods, joined with +")
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = heading(["model", "temperature", "methods", "fixed", *CASES])
    for model, temperature in UNITS if args.write else [(args.model, args.temperature)]:
        for line in lines(model, temperature, args.orders, args.noise, args.chains):
            print(line, flush=True)
            table.append(line)
    if args.write:
        write(PAGE, lambda name: table if name == "replay" else None)


if __name__ == "__main__":
    main()
