"""``--control auto``: the method and draft length with the most tokens per time, or plain decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import attrs
from attrs.setters import NO_OP
from attrs.validators import ge, gt
from spec_costs.file import read as read_costs

from spec_control import (
    FIRST_INTERVAL,
    HOLD,
    LOSING,
    PAUSE,
    PAUSE_MAX,
    PRICE_MAX,
    PRICE_MIN,
    PROBE,
    PROBE_LOSS,
    RECENT,
    RESERVE,
    SETTLE,
    STANDING,
    TREE_COST,
    TRIAL,
    TRIAL_LOSS,
)
from spec_control.acceptance import Drafts, Method, Text
from spec_control.account import Account, Report
from spec_control.costs import Costs, Machine
from spec_core import Compat, DraftPlan, Limit, Step, StepRecord, hookimpl

MEASURING, REPAYING, LOST = "measuring a plain step", "repaying", "not paying"
"""Why nobody drafts."""
NOTE = "the length of drafts follows measured times, and the text of a seed depends on it here: {}; "
Limits = Mapping[str, Limit]


class Wish(NamedTuple):
    """A sequence that may draft: its number, methods that its request allows, longest draft, and number of tokens."""

    number: int
    methods: tuple[str, ...]
    budget: int
    tokens: int = 0


@attrs.define(eq=False)
class Planner:
    """Learns from steps and plans the next ones. It reads no clock.

    every: max steps with drafts between two measured plain ones. steps: that were learned from.
    unmeasured, interval: steps with drafts since a plain one was measured, and after how many one is due.
    undrafted: steps since the last one with drafts. pause, probe_at: steps between two probes, step of the next one.
    asked: methods of the present plan. reason: why it lets nobody draft.
    """

    account: Account = attrs.field(factory=Account)
    every: int = 128
    machine: Machine = attrs.field(factory=Machine)
    report: Report = attrs.field(factory=Report)
    methods: dict[str, Method] = attrs.field(factory=dict)
    texts: dict[int, Text] = attrs.field(factory=dict)
    steps: int = 0
    unmeasured: int = 0
    interval: int = FIRST_INTERVAL
    undrafted: int = 0
    pause: int = PAUSE
    probe_at: int = 0
    repaying: bool = False
    asked: tuple[str, ...] = ()
    reason: str = ""

    # learning

    def learn(self, records: list[StepRecord], controller: str) -> None:
        """From all steps since the last plan. controller: its name in the run."""
        drafts: dict[tuple[int, str], Drafts] = {}
        if len(records) > 2 * RECENT and records[-1].plain:  # of a long rest, its end says enough
            self._rest_over(len(records) - RECENT)
            records = records[-RECENT:]
        for record in records:
            if record.depth is None:  # rows of a prompt: it says nothing about a plain step
                self.undrafted = 0
                continue
            self.steps += 1
            own = record.seconds.get(f"draft.{controller}", 0.0)
            if record.attempts:
                self._learn_step(record, own, drafts)
            elif record.rows == record.sequences:
                self._learn_plain(record, own)
        for (number, name), each in drafts.items():
            self.methods[name].learn(each)
            self._text(number).learn(self.methods[name], each)
            self.report.use(name).lengths.update(attempt.depth for attempt in each.attempts)
        for costs in self.machine.known.values():
            costs.guess()

    def _rest_over(self, steps: int) -> None:
        """So many plain steps, in which methods took what they usually do."""
        standing = sum(method.standing.value for method in self.methods.values())
        for method in self.methods.values():
            method.stood += steps * method.standing.value
        self.steps += steps
        self.account.charge(steps, steps * (1.0 + standing))
        self.report.add(steps, steps * (1.0 + standing), self.reason, steps)

    def _learn_plain(self, record: StepRecord, own: float) -> None:
        taken = seconds_of_methods(record, self.methods)
        beside = sum(taken.values()) + own
        self.undrafted += 1
        if self.undrafted >= SETTLE - 1:  # the first forwards after drafts take longer
            forward = record.seconds["verify"]
            self.machine.add_plain(record.sequences, forward, record.total_seconds - forward - beside)
            self.unmeasured = 0
        plain = self.machine.costs(record.sequences).plain
        if not plain:
            return
        time = 1.0 + beside / plain
        self.account.charge(1.0, time)
        self.report.add(1.0, time, self.reason)
        for name, seconds in taken.items():
            if name in self.asked and not record.plain:
                self.methods[name].offer(False, seconds / plain)
            elif record.plain:
                self.methods[name].standing.add(seconds / plain)
                self.methods[name].stood += seconds / plain

    def _learn_step(self, record: StepRecord, own: float, drafts: dict[tuple[int, str], Drafts]) -> None:
        """A step with drafts, which are added to ``drafts``."""
        costs, attempts, sequences = self.machine.costs(record.sequences), record.attempts, record.sequences
        self.undrafted = 0
        self.unmeasured += 1
        costs.add(record.rows, record.seconds["verify"])
        if not costs.plain:
            return
        plain, tokens = costs.plain_seconds(record), record.tokens / sequences
        names = {attempt.method for attempt in attempts}
        depth = sum(attempt.depth for attempt in attempts) / sequences
        usual = costs.step(record.rows) + sum(self.methods[name].overhead(sequences, depth) for name in names)
        time = (record.total_seconds - own) / plain
        expected, first = usual, False
        for attempt in attempts:  # a method's first draft for a text evaluates what it has missed
            text, method = self._text(attempt.number), self.methods[attempt.method]
            if attempt.method not in text.served:
                text.served.add(attempt.method)
                first, expected = True, expected + method.first.at(text.tokens)
                method.first.add(text.tokens, max(0.0, time - usual))
        if len(names) == 1 and not first:
            beside = (record.total_seconds - record.seconds["verify"] - own) / plain - costs.beside
            self.methods[attempts[0].method].line(sequences).add(depth, max(0.0, beside))
        charged = time + own / plain - self.account.waive(time - expected)
        self.account.charge(tokens, charged)
        self.report.add(tokens, charged, "")
        for name in self.asked:  # up to the first that drafted
            self.methods[name].offer(name in names, record.seconds.get(f"draft.{name}", 0.0) / plain)
            if name in names:
                break
        extra = ((min(time, usual) if first else charged - own / plain) - 1.0) * sequences
        rows = sum(attempt.drafted for attempt in attempts)
        for attempt in attempts:
            each = drafts.get((attempt.number, attempt.method))
            if each is None:
                each = drafts[attempt.number, attempt.method] = Drafts(attempt.method in record.priced)
            each.attempts.append(attempt)
            each.time += 1.0 + extra * attempt.drafted / rows
        for name in names:
            self.report.use(name).add(tokens / len(names), charged / len(names))

    def _text(self, number: int) -> Text:
        if number not in self.texts:
            self.texts[number] = Text(number, ())
        return self.texts[number]

    # planning

    def plan(self, wishes: list[Wish], sequences: int, trees: bool) -> DraftPlan:
        """wishes: of sequences that may draft. sequences: of the step, others included. trees: drafts may branch."""
        texts, drop = self._begin(wishes)
        costs, account = self.machine.costs(sequences), self.account
        if not costs.plain or costs.doubtful or self.unmeasured >= self.interval:
            self.interval = FIRST_INTERVAL if costs.surprised else min(self.every, 2 * self.interval)
            return self._rest(MEASURING, SETTLE, drop)
        reserve = min(RESERVE, 0.9 * account.balance_max)
        self.repaying = account.balance < (reserve if self.repaying else reserve / 4)
        if self.repaying:
            return self._rest(REPAYING, (1.5 * reserve - account.balance) / account.share, drop)
        limits = {text.number: self._choose(costs, text, trees) for text in texts}
        trial = self._trial(costs, texts, limits, trees)
        if not trial and not any(limits.values()):
            trial = self._probe(costs, texts, limits, trees)
        if not any(limits.values()):
            return self._rest(LOST, self.probe_at - self.steps, drop)
        return self._draft(costs, limits, drop, trial)

    def _begin(self, wishes: list[Wish]) -> tuple[list[Text], set[str]]:
        """The texts of these sequences, and methods that shall not serve a new one."""
        drop: set[str] = set()
        texts = {wish.number: self.texts.get(wish.number) or Text(wish.number, ()) for wish in wishes}
        for wish in wishes:
            if wish.number not in self.texts:
                drop.update(name for name in wish.methods if not self._admits(self.methods[name]))
                if self.account.plenty:  # another text may be easier
                    self.pause, self.probe_at = PAUSE, self.steps
        for wish in wishes:
            text = texts[wish.number]
            text.methods = tuple(name for name in wish.methods if name not in drop)
            text.budget, text.tokens = wish.budget, wish.tokens
            drop -= {name for name in text.gains if text.gains[name].net > 0.0}
        self.texts = texts
        return [*texts.values()], drop

    def _admits(self, method: Method) -> bool:
        """Whether a method serves a new text: one that takes time while it does not draft must gain, or be tried."""
        if method.standing.value <= self.account.share or not method.is_tried or method.gain.net > 0.0:
            return True
        loss = STANDING + PROBE_LOSS
        return (self.steps - method.tried_at) * self.account.share >= loss

    def _rest(self, reason: str, steps: float, drop: set[str]) -> DraftPlan:
        """Nobody drafts."""
        self.reason, self.asked = reason, ()
        whole = max(SETTLE, min(PAUSE_MAX, int(steps)))
        return DraftPlan({}, steps=whole, drop=drop | self._idle_too_long(whole))

    def _idle_too_long(self, steps: int) -> set[str]:
        """Methods that take time in steps in which nobody drafts, and will have taken too much."""
        methods = (m for m in self.methods.values() if m.standing.value > self.account.share)
        return {m.name for m in methods if m.stood + steps * m.standing.value >= STANDING}

    def _draft(self, costs: Costs, limits: Mapping[int, Limits], drop: set[str], trial: float) -> DraftPlan:
        """Methods draft, for as many steps as the balance pays for if all of their usual drafts are rejected."""
        account, steps = self.account, TRIAL if trial else HOLD
        usual = max(0.01, self._loss(costs, limits, usual=True))
        steps = max(1, min(steps, self.interval - self.unmeasured, int(account.balance / usual)))
        loss = trial or max(TRIAL_LOSS / 2, account.balance / 2)
        firsts = [self._first(self.texts[n], self.methods[name]) for n, one in limits.items() for name in one]
        loss = max(0.0, min(loss + max(firsts, default=0.0), account.balance - self._loss(costs, limits)))
        self.reason = ""
        self.asked = tuple(name for name in self.methods if any(name in one for one in limits.values()))
        common, *others = limits.values()
        apart = {number: one for number, one in limits.items() if one != common} if others else {}
        return DraftPlan(common, apart, steps, loss * costs.plain, costs.plain, drop)

    def _loss(self, costs: Costs, limits: Mapping[int, Limits], usual: bool = False) -> float:
        """Plain steps that a step loses if all drafts are rejected. usual: where a price stops them, of their usual length."""
        rows, overhead = 0.0, 0.0
        for one in limits.values():
            lengths = {name: limit.length or 0 for name, limit in one.items()}
            if usual:
                lengths = {n: self.methods[n].usual(k) for n, k in lengths.items()}
            rows += max((k * self.methods[n].branching.value for n, k in lengths.items()), default=0)
            overhead = max([overhead, *(self.methods[n].overhead(costs.sequences, k) for n, k in lengths.items())])
        return costs.step(costs.sequences + round(rows)) + overhead - 1.0

    # choosing

    def _choose(self, costs: Costs, text: Text, trees: bool) -> Limits:
        """Of methods that gain in this text the best; others before it where their drafts are better, or after it."""
        if text.lost > LOSING and not self.account.plenty:
            return {}
        limits, values = {}, {}
        for name in text.methods:
            method = self.methods[name]
            if not self._tried(method) or not (limit := self._limit(costs, text, method, trees)):
                continue
            tokens, time = self._forecast(costs, text, method, limit)
            time += self._first(text, method) / HOLD
            share, idle = method.offers.value, (1.0 - method.offers.value)
            value = (share * tokens + idle) / (share * time + idle * (1.0 + method.idle.value))
            if value > 1.0:
                limits[name], values[name] = limit, (value, tokens / time)
        if not values:
            return {}
        best = max(values, key=lambda name: values[name][0])
        names = [*limits]
        after = names[names.index(best) :]
        self.pause, self.probe_at = PAUSE, self.steps + PAUSE
        return {n: limit for n, limit in limits.items() if n in after or values[n][1] >= values[best][0]}

    def _first(self, text: Text, method: Method) -> float:
        """Plain steps that its next draft takes because it is its first one for this text."""
        return 0.0 if method.name in text.served else method.first.at(text.tokens)

    def _tried(self, method: Method) -> bool:
        return method.is_tried or method.lost >= TRIAL_LOSS

    def _forecast(self, costs: Costs, text: Text, method: Method, limit: Limit) -> tuple[float, float]:
        """Tokens and time of a step with its draft. One that stops by a price is judged by what its drafts gained."""
        if method.stops:
            gain = text.gain(method)
            return gain.tokens, gain.time
        length = limit.length or 0
        path = method.positions.path(text.rate(method).value, length)
        return 1.0 + sum(path), self._time(costs, method, length)

    def _time(self, costs: Costs, method: Method, length: int) -> float:
        """Of a step in which a method drafts so many tokens for every sequence."""
        rows = costs.sequences * (1.0 + length * method.branching.value)
        return costs.step(round(rows)) + method.overhead(costs.sequences, length)

    def _limit(
        self, costs: Costs, text: Text, method: Method, trees: bool, longest: int | None = None
    ) -> Limit | None:
        """The length with the most tokens per time of those that the balance allows. longest: of a trial."""
        rows = (costs.rows_max - costs.sequences) / (costs.sequences * method.branching.value)
        most = min(text.budget, max(1, int(rows)), longest or text.budget)
        times = [self._time(costs, method, k) for k in range(most + 1)]
        while most and times[most] - 1.0 > self.account.risk:
            most -= 1
        balance = self.account.balance
        spare = balance - RESERVE if method.gain.net > 0.0 else balance / 2
        if not most or self._first(text, method) > spare:
            return None
        length = most
        if not method.stops and longest is None:
            tokens, best, length = 1.0, 0.0, 1
            for k, chance in enumerate(method.positions.path(text.rate(method).value, most), 1):
                tokens += chance
                if tokens / times[k] > best:
                    best, length = tokens / times[k], k
        return Limit(length, self._price(times, text, method), self._nodes(costs, method, length, trees))

    def _price(self, times: list[float], text: Text, method: Method) -> float:
        """The chance at which one more token pays, by the method's own estimate: its time could gain as much elsewhere."""
        last = min(len(times) - 1, max(4, round(method.depth.value)))
        slope = (times[last] - times[1]) / (last - 1) if last > 1 else times[1] - 1.0
        gain = text.gain(method)
        chance = slope * max(1.0, gain.tokens / gain.time) / method.calibration.bias
        return max(PRICE_MIN, min(chance, PRICE_MAX))

    def _nodes(self, costs: Costs, method: Method, length: int, trees: bool) -> int | None:
        """Tokens of a tree: as many as cost no more than it may gain, or a chain where that gained more."""
        if not trees:
            return None
        rows = costs.sequences * (1 + length)
        chain = costs.step(rows)
        while rows < costs.rows_max and costs.step(rows + costs.sequences) - chain <= TREE_COST:
            rows += costs.sequences
        nodes = rows // costs.sequences - 1
        if method.tree.count < TRIAL:
            return nodes
        if method.chain.count < TRIAL:
            return length
        tree, chains = method.tree, method.chain
        return nodes if tree.tokens / tree.time > chains.tokens / chains.time else length

    def _trial(self, costs: Costs, texts: list[Text], limits: dict[int, Limits], trees: bool) -> float:
        """Let one text try a method of which little is known. Returns the time that this may lose, 0 without a trial."""
        if not self.account.plenty:
            return 0.0
        for text in texts:
            for name in text.methods:
                method = self.methods[name]
                stale = name not in limits[text.number] and self.steps - method.tried_at >= PAUSE_MAX
                if (not self._tried(method) or stale) and self._grant(costs, text, method, limits, trees):
                    return PROBE_LOSS if self._tried(method) else TRIAL_LOSS / 2
        return 0.0

    def _probe(self, costs: Costs, texts: list[Text], limits: dict[int, Limits], trees: bool) -> float:
        """Let one text try the method that was not tried for longest, after a pause. Returns the same."""
        if self.steps < self.probe_at or not texts:
            return 0.0
        text = texts[self.report.steps % len(texts)]
        for method in sorted((self.methods[name] for name in text.methods), key=lambda method: method.tried_at):
            if self._grant(costs, text, method, limits, trees):
                self.pause = min(PAUSE_MAX, 2 * self.pause)
                self.probe_at = self.steps + self.pause
                return PROBE_LOSS
        self.probe_at = self.steps + PAUSE_MAX
        return 0.0

    def _grant(self, costs: Costs, text: Text, method: Method, limits: dict[int, Limits], trees: bool) -> bool:
        """Let a method draft a little for a text, and those that gain where it offers nothing."""
        limit = self._limit(costs, text, method, trees, longest=PROBE)
        if limit is None:
            return False
        names = [*text.methods]
        after = {n: one for n, one in limits[text.number].items() if names.index(n) > names.index(method.name)}
        limits[text.number] = {method.name: attrs.evolve(limit, price=min(limit.price or 0.5, 0.5)), **after}
        method.tried_at = self.steps
        self.report.use(method.name).probes += 1
        return True


@attrs.define(eq=False, on_setattr=NO_OP)
class Auto:
    """Drafts as long as they pay, and never costs more than a stated share of plain decoding."""

    share: float = attrs.field(
        default=0.01, validator=gt(0.0), metadata={"help": "time that may be lost, as a share of plain decoding"}
    )
    balance: float = attrs.field(
        default=20.0, validator=gt(0.0), metadata={"help": "plain steps that may be lost beside that share"}
    )
    plain_every: int = attrs.field(
        default=128, validator=ge(8), metadata={"help": "max steps with drafts between two plain ones that are measured"}
    )
    costs: str | None = attrs.field(
        default=None, metadata={"help": "file of `spec bench step --out`, with costs to begin with"}
    )
    planner: Planner = attrs.field(init=False)
    exact: str | None = attrs.field(default=None, init=False)
    private: bool = attrs.field(default=False, init=False)
    _name: str = attrs.field(default="", init=False)
    _records: list[StepRecord] = attrs.field(factory=list, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()

    def _begin(self, target: Any = None) -> None:
        """A run begins: what is measured is of one run."""
        self.planner, self._records = Planner(Account(self.share, self.balance), self.plain_every), []
        self.exact = None if target is None else target.info.exact
        if self.costs is not None and target is not None:
            file = read_costs(Path(self.costs))
            file.check(target)
            self.planner.machine.begin_with(file.steps)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), load=self._begin, report=self.report)

    @hookimpl
    def draft(self, step: Step) -> None:
        with self._lock:
            self.private, self._name, self._records = step.private, step.plugin, step.records
            for name in step.methods:
                self.planner.methods.setdefault(name, Method(name))
            self.planner.learn(step.records, step.plugin)
            step.plan(self.planner.plan(wishes_of(step), len(step.parts), step.trees))

    def report(self) -> dict[str, Any]:
        """What was chosen, what it gained, and the account, in plain steps. It changes no plan."""
        with self._lock:  # another thread may ask, while the run makes steps
            planner = deepcopy(self.planner)
            planner.learn(list(self._records), self._name)
        account = planner.account
        names = ("balance", "lowest", "excess", "balance_max", "share")
        return {**planner.report.fields(), "ledger": {n: getattr(account, n) for n in names}, "note": self.note}

    @property
    def note(self) -> str | None:
        """Why a seed's text depends on measured time; None where it does not."""
        if self.private:
            return NOTE.format("the rule draws with noise of its own") + "control=fixed reproduces it"
        if self.exact not in (None, "", "rows"):
            return NOTE.format("rows are not equal to the bit") + "control=fixed reproduces it"
        return None


def seconds_of_methods(record: StepRecord, methods: Iterable[str]) -> dict[str, float]:
    """{method: seconds of all its hooks}."""
    taken = dict.fromkeys(methods, 0.0)
    for label, seconds in record.seconds.items():
        name = label.partition(".")[2]
        if name in taken:
            taken[name] += seconds
    return taken


def wishes_of(step: Step) -> list[Wish]:
    """Sequences that may draft and want control."""
    parts = (part for part in step.parts if part.budget and part.seq.wants(step.plugin))
    return [Wish(p.seq.number, tuple(filter(p.seq.wants, step.methods)), p.budget, p.start) for p in parts]
