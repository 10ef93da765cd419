"""A random machine with random methods, texts and clocks, for a planner: everything follows from a seed."""

from __future__ import annotations

import random

import attrs
from spec_control.acceptance import TextStats
from spec_control.planner import Planner

from spec_core import DraftAttempt, DraftPlan, StepRecord
from tests.control.simulator import CURVES

HOST = 0.05
"""Time of a step besides forward and drafting, in plain forwards."""


@attrs.frozen
class Drafter:
    """A method. rates: chance of a token by phase of the run. offers: share of steps in which it drafts.

    base, row: time of a draft, and of each of its tokens; first: of the first for a text. standing: time in a step
    without a draft. priced: it asks for the price, and gives each token the chance ``says``. branches: of its trees.
    """

    rates: tuple[float, ...]
    offers: float
    base: float
    row: float
    first: float
    standing: float
    priced: bool
    says: float
    branches: int


def draw_drafter(rng: random.Random) -> Drafter:
    rates = tuple(rng.choice([0.0, 0.3, 0.6, 0.9, 1.0]) for _ in range(rng.randint(1, 4)))
    return Drafter(
        rates,
        offers=rng.choice([1.0, 1.0, 0.5, 0.1]),
        base=rng.choice([0.0, 0.05, 0.3, 2.0]),
        row=rng.choice([0.0, 0.01, 0.2]),
        first=rng.choice([0.0, 0.0, 1.0, 15.0]),
        standing=rng.choice([0.0, 0.0, 0.01, 0.2]),
        priced=rng.random() < 0.5,
        says=rng.choice([0.5, 0.8, 0.97]),
        branches=rng.choice([1, 1, 3]),
    )


@attrs.define(slots=False)
class RandomMachine:
    """Texts that begin and end at random, in a loop that follows the plans of a planner.

    turns: the machine changes its speed now and then. spikes: chance that a step takes 50 times as long. stops: chance
    that the clock does not move in a step. noise: standard deviation of a forward's factor.
    introduced: time of the drafts in the step in which each method first drafted, in plain forwards.
    spent, plain, emitted: by step: its time, that of a plain step of the same sequences at that moment, and tokens of
    each sequence.
    """

    seed: int
    turns: bool = True
    planner: Planner = attrs.field(factory=Planner)
    spent: list[float] = attrs.field(factory=list)
    plain: list[float] = attrs.field(factory=list)
    emitted: list[float] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        self.drafters = {f"m{i}": draw_drafter(rng) for i in range(rng.randint(1, 3))}
        self.curve = CURVES[rng.choice(sorted(CURVES))]
        self.sequences = rng.choice([1, 1, 2, 4, 6])
        self.length = rng.choice([20, 100, 1000])
        self.phase = rng.choice([40, 200, 1000])
        self.noise = rng.choice([0.0, 0.02, 0.1])
        self.spikes = rng.choice([0.0, 0.0, 0.002, 0.02])
        self.stops = rng.choice([0.0, 0.0, 0.01])
        self.trees = rng.random() < 0.3
        self.speed, self.step, self.numbers = 1.0, 0, 0
        self.introduced, self.begun = 0.0, dict[str, int]()
        self.texts: dict[int, tuple[int, int]] = {}
        self.served: set[tuple[int, str]] = set()
        self.dropped: set[tuple[int, str]] = set()
        self.planner.begin(self.drafters)
        self.records: list[StepRecord] = []
        self.plan, self.left, self.lost, self.followed = DraftPlan({}), 0, 0.0, False

    def run(self, steps: int) -> RandomMachine:
        for _ in range(steps):
            if self._begin_texts() or self.left <= 0 or self.lost > self.plan.loss_max:
                self._make_plan()
                self.followed = False
            else:
                self.followed = True
            self.left -= 1
            record = self._make_step()
            self.records.append(record)
            self.lost = max(0.0, self.lost + self.plan.loss_of(record))
            self.step += 1
        return self

    def _begin_texts(self) -> bool:
        """End texts, and begin others; returns whether there were any."""
        rng, before = self.rng, set(self.texts)
        self.texts = {number: text for number, text in self.texts.items() if rng.random() > 1.0 / self.length}
        while len(self.texts) < self.sequences and (rng.random() < 0.3 or not self.texts):
            self.texts[self.numbers] = rng.choice([0, 1, 3, 16, 16]), rng.randint(1, 2000)
            self.numbers += 1
        if self.turns and rng.random() < 1 / 200:
            self.speed = rng.choice([0.5, 1.0, 2.0])
        return set(self.texts) != before

    def _make_plan(self) -> None:
        self.planner.learn(self.records, "auto")
        self.records.clear()
        texts = {
            number: TextStats(tuple(n for n in self.drafters if (number, n) not in self.dropped), budget, tokens)
            for number, (budget, tokens) in self.texts.items()
            if budget
        }
        self.plan = self.planner.plan(texts, len(self.texts), self.trees) if texts else DraftPlan({})
        self.left, self.lost = self.plan.steps, 0.0
        self.dropped |= {(number, name) for number in texts for name in self.plan.drop}

    def _make_step(self) -> StepRecord:
        rng, n = self.rng, len(self.texts)
        attempts, seconds = [], {}
        for number, (budget, _) in self.texts.items():
            for name, limit in self.plan.limits_of(number).items():
                drafter = self.drafters[name]
                if (number, name) in self.dropped or not budget:
                    continue
                if rng.random() < drafter.offers and (one := self._attempt(number, name, limit, budget)).depth:
                    attempts.append(one)
                    time = drafter.base + drafter.row * one.drafted
                    if (number, name) not in self.served:
                        is_first = self.begun.setdefault(name, self.step) == self.step
                        self.introduced += (time + drafter.first) * is_first
                        self.served.add((number, name))
                        time += drafter.first
                    seconds[f"draft.{name}"] = seconds.get(f"draft.{name}", 0.0) + time
                    break
        for name, drafter in self.drafters.items():
            if any(budget and (number, name) not in self.dropped for number, (budget, _) in self.texts.items()):
                seconds[f"process.{name}"] = drafter.standing
        rows = n + sum(one.drafted for one in attempts)
        return self._record(attempts, seconds, rows)

    def _record(self, attempts: list[DraftAttempt], seconds: dict[str, float], rows: int) -> StepRecord:
        rng, n = self.rng, len(self.texts)
        stands = rng.random() < self.stops
        factor = 0.0 if stands else self.speed * (50.0 if rng.random() < self.spikes else 1.0)
        noise = max(0.5, rng.gauss(1.0, self.noise))
        seconds = {label: factor * time for label, time in seconds.items()}
        seconds["verify"] = factor * noise * self._forward(rows)
        if not self.followed:
            seconds["draft.auto"] = 0.05 * factor
        total = sum(seconds.values()) + HOST * factor
        tokens = n + sum(one.accepted or 0 for one in attempts)
        self.spent.append(total)
        self.plain.append(factor * (self._forward(n) + HOST))
        self.emitted.append(tokens / n)
        priced = {name for name, drafter in self.drafters.items() if drafter.priced}
        is_plain = self.plan.is_plain and self.followed
        return StepRecord(self.step, total, seconds, n, rows, tokens, 100, tuple(attempts), priced, is_plain)

    def _forward(self, rows: int) -> float:
        return self.curve(rows)

    def _attempt(self, number: int, name: str, limit, budget: int) -> DraftAttempt:
        drafter, rng = self.drafters[name], self.rng
        depth = min(limit.length if limit.length is not None else budget, budget)
        if drafter.priced and limit.price is not None:
            while depth > 1 and drafter.says**depth < limit.price:
                depth -= 1
        rate = drafter.rates[self.step // self.phase % len(drafter.rates)]
        accepted = next((i for i in range(depth) if rng.random() > rate), depth)
        nodes = max(depth, min(limit.nodes or depth, depth * drafter.branches)) if self.trees else depth
        return DraftAttempt(number, name, limit.length or 0, nodes, depth, accepted)

    @property
    def excess(self) -> float:
        """The most that a window's time exceeds (1 + share) times that of plain decoding by, in plain steps."""
        worst = running = 0.0
        for spent, emitted, plain in zip(self.spent, self.emitted, self.plain, strict=True):
            if plain:
                running = max(0.0, running + spent / plain - (1 + self.planner.account.share) * emitted)
                worst = max(worst, running)
        return worst

    @property
    def speedup(self) -> float:
        """Time of plain decoding, divided by the time that was spent."""
        return sum(e * p for e, p in zip(self.emitted, self.plain, strict=True)) / sum(self.spent)
