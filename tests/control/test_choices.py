"""What the controller chooses: methods, lengths of each sequence, trees or chains, and who serves at all."""

from __future__ import annotations

import random

import attrs
import pytest
from spec_control.acceptance import TextStats
from spec_control.planner import Planner

from spec_core import DraftAttempt, StepRecord

HOST = 0.05
PRICED = frozenset({"confident"})


@attrs.define
class Method:
    """rate: chance of a token. offers: share of steps with a draft. drafting, standing: its times. branches: tokens a
    level of its trees. confidence: the chance that it gives each token."""

    rate: float
    offers: float = 1.0
    drafting: float = 0.1
    standing: float = 0.0
    first: float = 0.0
    branches: int = 1
    confidence: float | None = None


@attrs.define
class Machine:
    """Runs plans of a planner: methods draft in their order, as much as they may.

    row: time of one more row of a forward. rates: {(sequence, method): chance of a token}, in place of the method's.
    drafts: (sequence, method, longest path, tokens) of all. dropped: methods that no longer serve.
    """

    methods: dict[str, Method]
    row: float = 0.1
    sequences: int = 1
    rates: dict[tuple[int, str], float] = attrs.field(factory=dict)
    planner: Planner = attrs.field(factory=Planner)
    rng: random.Random = attrs.field(factory=lambda: random.Random(1))
    drafts: list[tuple[int, str, int, int]] = attrs.field(factory=list)
    dropped: set[str] = attrs.field(factory=set)
    plans: list = attrs.field(factory=list)
    tokens: int = 0
    time: float = 0.0
    _served: set[tuple[int, str]] = attrs.field(factory=set)

    def run(self, steps: int) -> Machine:
        self.planner.methods or self.planner.begin(self.methods)
        records: list[StepRecord] = []
        for _ in range(steps):
            if not self.plans or self.left == 0 or self.lost > self.plans[-1].loss_max:
                self.planner.learn(records, "auto")
                records = []
                names = tuple(name for name in self.methods if name not in self.dropped)
                texts = {number: TextStats(names, 16, 50) for number in range(self.sequences)}
                self.plans.append(self.planner.plan(texts, self.sequences, trees=True))
                self.left, self.lost = self.plans[-1].steps, 0.0
                self.dropped |= self.plans[-1].drop
            self.left -= 1
            records.append(self._step())
            self.lost = max(0.0, self.lost + self.plans[-1].loss_of(records[-1]))
        return self

    left: int = 0
    lost: float = 0.0

    def _step(self) -> StepRecord:
        attempts, seconds = [], {}
        for number in range(self.sequences):
            for name, limit in self.plans[-1].limits_of(number).items():
                method = self.methods[name]
                if name not in self.dropped and self.rng.random() < method.offers:
                    attempts.append(self._attempt(number, name, limit))
                    seconds[f"draft.{name}"] = method.drafting
                    if (number, name) not in self._served:
                        self._served.add((number, name))
                        seconds[f"draft.{name}"] += method.first
                    break
        for name, method in self.methods.items():
            if name not in self.dropped:
                seconds[f"process.{name}"] = method.standing
        rows = self.sequences + sum(attempt.drafted for attempt in attempts)
        seconds["verify"] = 1.0 + self.row * (rows - self.sequences)
        total, tokens = sum(seconds.values()) + HOST, self.sequences + sum(a.accepted for a in attempts)
        self.tokens, self.time = self.tokens + tokens, self.time + total
        plain = self.plans[-1].is_plain and self.left < self.plans[-1].steps - 1
        return StepRecord(0, total, seconds, self.sequences, rows, tokens, 90, tuple(attempts), PRICED, plain)

    def _attempt(self, number, name, limit) -> DraftAttempt:
        method = self.methods[name]
        depth = limit.length
        if method.confidence is not None:
            while depth > 1 and method.confidence**depth < limit.price:
                depth -= 1
        rate = self.rates.get((number, name), method.rate)
        accepted = next((i for i in range(depth) if self.rng.random() > rate), depth)
        nodes = max(depth, min(limit.nodes, depth * method.branches))
        if accepted < depth and nodes > depth and self.rng.random() < 0.5:
            accepted += 1
        self.drafts.append((number, name, depth, nodes))
        judged = None if method.confidence is None else self._judge(method.confidence, depth, accepted, nodes > depth)
        return DraftAttempt(number, name, limit.length, nodes, depth, accepted, judged)

    def _judge(self, chance: float, depth: int, accepted: int, branches: bool) -> tuple[tuple[float, bool], ...]:
        """A token at every level, and beside each in a tree another one with the rest of the chance, never accepted."""
        chain = [(chance, i < accepted) for i in range(min(depth, accepted + 1))]
        return (*chain, *(((1.0 - chance) / 2, False) for _ in chain if branches))

    @property
    def speed(self) -> float:
        """Tokens of a sequence by plain step."""
        return self.tokens / self.sequences / (self.time / (1.0 + HOST))

    def share(self, name: str, last: int = 200) -> float:
        return sum(one == name for _, one, _, _ in self.drafts[-last:]) / last


def test_of_several_methods_the_one_with_the_most_tokens_per_time_drafts():
    machine = Machine({"poor": Method(0.5), "good": Method(0.9), "wrong": Method(0.0)}).run(1500)

    assert machine.share("good") > 0.9
    assert machine.speed > 0.9 * Machine({"good": Method(0.9)}).run(1500).speed


def test_a_lookup_that_seldom_offers_drafts_before_the_others_and_they_where_it_does_not():
    machine = Machine({"lookup": Method(0.97, offers=0.3, drafting=0.01), "model": Method(0.7, drafting=0.3)}).run(1500)

    assert 0.15 < machine.share("lookup") < 0.6
    assert machine.share("model") > 0.4


def test_a_sequence_whose_drafts_are_rejected_does_not_draft_beside_one_whose_are_not():
    rates = {(0, "m"): 0.95, (1, "m"): 0.05}
    machine = Machine({"m": Method(0.5)}, sequences=2, rates=rates, row=0.05).run(1500)
    tokens = [sum(nodes for number, _, _, nodes in machine.drafts[-300:] if number == i) for i in (0, 1)]

    assert tokens[0] > 10 * tokens[1]
    assert machine.speed > 1.2


def test_a_tree_is_wide_where_rows_are_free_and_a_chain_where_they_are_not():
    widths = {}
    for row in (0.0, 0.33):
        machine = Machine({"tree": Method(0.6, branches=4)}, row=row).run(1500)
        depth, nodes = (sum(draft[i] for draft in machine.drafts[-100:]) for i in (2, 3))
        widths[row] = nodes / depth

    assert widths[0.0] > 2.0
    assert widths[0.33] < 1.3


def test_a_price_rises_where_last_tokens_are_rejected_and_falls_where_they_are_accepted():
    """Whatever chance the method gives its tokens."""
    prices = {}
    for rate in (0.5, 0.97):
        machine = Machine({"confident": Method(rate, confidence=0.9)}, row=0.1).run(1500)
        prices[rate] = machine.planner.methods["confident"].price(1)

    assert prices[0.97] < 0.25 < 0.35 < prices[0.5]


def test_a_method_that_takes_time_without_drafting_no_longer_serves_a_text_where_it_loses():
    machine = Machine({"heavy": Method(0.0, standing=0.2)}).run(600)

    assert machine.dropped == {"heavy"}
    assert machine.speed > 0.97


def test_a_method_that_takes_time_without_drafting_stays_where_it_gains():
    assert not Machine({"heavy": Method(0.95, standing=0.2)}, row=0.02).run(600).dropped


def test_a_first_draft_that_costs_more_than_the_balance_is_not_made_again():
    """That of the run may load and allocate; the second one shows its cost, and each text would lose it again."""
    machine = Machine({"slow": Method(0.5, first=30.0)})
    counts = []
    for _ in range(3):
        machine.run(400)
        counts.append(len(machine.drafts))
        machine.planner.account.balance = 20.0
        machine.planner.texts.clear()
        machine._served.clear()
        machine.left = 0

    assert counts[0] and counts[2] == counts[1]


def test_costs_of_four_sequences_are_expected_of_five():
    machine = Machine({"m": Method(0.8)}, sequences=4, row=0.03).run(400)
    machine.sequences, machine.left = 5, 0
    machine.run(6)

    assert machine.planner.costs_of(5).at(15) == pytest.approx(1.3, abs=0.1)
