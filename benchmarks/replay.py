"""``control=auto`` over recorded texts, on a simulated clock: without the noise of a measurement.

    python benchmarks/replay.py -m pico --temperature 0.8               # records once, in build/replay
    python benchmarks/replay.py -m pico --orders 24 ngram               # only this list of methods

Real are the loop, the controller, ``ngram`` and ``suffix``. Looked up are the target's tokens, the drafts of methods
with a model, and what everything takes: medians of real runs. ``wrong`` is a method whose tokens are never right. A
forward takes that times a normal factor, whose standard deviation is ``--noise``. Each order of the prompts is a run.
Speedup over plain decoding on the same clock: of the fastest of FIXED, and of ``auto``, mean and standard error over
the orders.
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

from spec_control.auto import Auto
from spec_methods.ngram import Ngram
from spec_methods.suffix import Suffix

import spec_core.loop.guard
import spec_core.loop.run
from benchmarks.comparison import MODELS
from benchmarks.control import TOKENS, WRONG, Wrong, prompts
from benchmarks.support.recorded import LONGEST, LOOKUPS, Recorder, record_methods
from benchmarks.support.tables import ROOT, heading, row
from spec_core import Compat, Draft, Needs, Run, StashKey, Step, TargetInfo, TargetOutput, hookimpl, load
from spec_core.toolkit import AcceptanceEstimate

KEPT = ROOT / "build" / "replay"
CHAINS = {
    "pico": ["ngram", "suffix", "draft-model", "ngram+draft-model", WRONG],
    "smollm2": ["ngram", "suffix", WRONG],
}
USUAL = {"draft-model": 0.35}
"""Prices without a controller, where they are not 0.3."""
FIXED = (LONGEST, 8, 4, 2)
"""Longest drafts of runs without a controller; the first is what methods do by themselves."""
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


def time_method(cls: type, record: dict[str, Any], clock: Clock, *arguments: Any) -> Any:
    """A method of this class whose hooks take what was recorded."""

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
            else:
                clock.take(record["idle"])

    return Timed(*arguments)


@attrs.define
class Replay:
    """A model's record. There is one at a time: the loop and the controller read its clock."""

    record: dict[str, Any]
    noise: float
    clock: Clock = attrs.field(factory=Clock)

    def __attrs_post_init__(self) -> None:
        spec_core.loop.run.perf_counter = spec_core.loop.guard.perf_counter = self.clock

    def speedup(self, chain: str, order: list[int], seed: int, setting: int | None = None) -> float:
        """setting: ``auto`` if None, or the longest draft of a run without it."""
        self.clock.noise, self.clock.rng = self.noise, random.Random(seed)
        texts, target = self.record["texts"], Replayed(self.record, self.clock)
        methods = [(name, self._method(name)) for name in chain.split("+")]
        more: dict[str, Any] = {"control": "fixed", "draft_max": setting} if setting else {}
        named = methods if setting else [*methods, ("auto", self._controller())]
        run = Run(target, methods=named, reuse=False, max_sequences=1, **more)
        tokens, spent, began = 0, 0.0, [0.0]
        run.observe(lambda step: began.append(self.clock.now))
        for at in order:
            target.text = texts[at]["prompt"] + texts[at]["ids"]
            for _, method in methods:
                if isinstance(method, Recalled):
                    method.at = at
            began.clear()
            result = run.generate(texts[at]["prompt"], max_tokens=len(texts[at]["ids"])).result
            assert result.tokens == texts[at]["ids"]
            tokens, spent = tokens + len(result.tokens) - 1, spent + self.clock.now - began[0]
        return tokens * (self.record["forward"][0] + self.record["host"]) / spent

    def _method(self, name: str) -> Any:
        if name == WRONG:
            return Wrong()
        recorded_method = self.record["methods"][name]
        if name in LOOKUPS:
            return time_method({"ngram": Ngram, "suffix": Suffix}[name], recorded_method, self.clock)
        return time_method(Recalled, recorded_method, self.clock, recorded_method, USUAL.get(name, 0.3))

    def _controller(self) -> Auto:
        clock, (once, each) = self.clock, self.record["plan"]

        class Planning(Auto):
            @hookimpl
            def draft(self, step: Step) -> None:
                drafted = sum(bool(record.attempts) for record in step.records)
                Auto.draft(self, step)
                clock.take(once + each * drafted)

        return Planning()


def figures(replay: Replay, chain: str, orders: int) -> list[str]:
    """Cells of a line: the best fixed setting, the mean and standard error of ``auto``, and its share of the best."""
    texts = range(len(replay.record["texts"]))
    best = max((1.0, "none"), *((replay.speedup(chain, [*texts], 0, one), str(one)) for one in FIXED))
    mixed = (random.Random(seed).sample(texts, len(texts)) for seed in range(orders))
    speedups = [replay.speedup(chain, order, seed) for seed, order in enumerate(mixed)]
    error, mean = statistics.stdev(speedups) / len(speedups) ** 0.5, statistics.mean(speedups)
    return [f"`{chain}`", f"{best[0]:.2f} ({best[1]})", f"{mean:.2f} ± {error:.2f}", f"{mean / best[0]:.2f}"]


def lines(model: str, temperature: float, orders: int, noise: float, chains: list[str]) -> Iterator[str]:
    replay = Replay(record_of(model, temperature, CHAINS[model]), noise)
    for chain in chains or CHAINS[model]:
        yield row([f"`zoo:{model}`", f"{temperature:g}", *figures(replay, chain, orders)])


def record_of(model: str, temperature: float, chains: list[str]) -> dict[str, Any]:
    """Kept in a file, and recorded where there is none."""
    path = KEPT / f"{model}-{temperature:g}.json"
    if not path.exists():
        methods = dict.fromkeys(name for chain in chains for name in chain.split("+") if name != WRONG)
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
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("\n".join(heading(["model", "temperature", "methods", "best fixed (longest draft)", "auto", "of it"])))
    for line in lines(args.model, args.temperature, args.orders, args.noise, args.chains):
        print(line, flush=True)


if __name__ == "__main__":
    main()
