"""How much more time than plain decoding a run may still spend, and what became of its steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from spec_control import RECENT, RISK, SETTLE, TRIAL
from spec_control.acceptance import Drafts, Method, TextStats
from spec_control.costs import Costs, Line
from spec_core import StepRecord


@attrs.define
class Account:
    """A token bucket of time, in plain steps.

    A token is worth ``1 + share``, and a step costs its time by that of a plain step at its moment. The balance never
    exceeds ``balance_max``. A plan needs a balance of at least what it may lose.
    """

    share: float = 0.01
    balance_max: float = 20.0
    balance: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    lowest: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)

    @property
    def risk(self) -> float:
        """Plain steps that one step may lose at most."""
        return max(self.balance / RISK, min(self.balance, 1.0))

    @property
    def plenty(self) -> bool:
        """Whether it is at least half full."""
        return self.balance >= self.balance_max / 2

    def charge(self, tokens: float, time: float) -> None:
        """Charge a step. tokens: of each sequence, on average. time: in plain steps."""
        self.balance = min(self.balance_max, self.balance + (1.0 + self.share) * tokens - time)
        self.lowest = min(self.lowest, self.balance)


@attrs.define
class Use:
    """Steps, their tokens and their time. lengths: {tokens of the longest path: drafts}. probes: trials of a method."""

    steps: int = 0
    tokens: float = 0.0
    time: float = 0.0
    probes: int = 0
    lengths: Counter[int] = attrs.field(factory=Counter)

    def add(self, tokens: float, time: float, steps: int = 1) -> None:
        self.steps += steps
        self.tokens += tokens
        self.time += time

    @property
    def gain(self) -> float | None:
        """Time of plain decoding by the time that was spent."""
        return self.tokens / self.time if self.time else None


@attrs.define
class Report:
    """All steps that were measured. off: {why nobody was allowed to draft: steps}. methods: {name: its use}."""

    all: Use = attrs.field(factory=Use)
    off: Counter[str] = attrs.field(factory=Counter)
    methods: dict[str, Use] = attrs.field(factory=dict)

    def fields(self) -> dict[str, Any]:
        methods = {}
        for name, use in self.methods.items():
            lengths = {str(n): count for n, count in sorted(use.lengths.items())}
            share = {"time_share": use.time / self.all.time if self.all.time else None}
            methods[name] = {"steps": use.steps, "gain": use.gain, **share, "probes": use.probes, "lengths": lengths}
        whole = {"steps": self.all.steps, "gain": self.all.gain, "off": dict(self.off)}
        return {"summary": self.summary(), **whole, "methods": methods}

    def summary(self) -> str:
        """One line: what was chosen, how fast it was, and what a loss consists of."""
        whole = self.all
        if whole.gain is None:
            return "nothing measured"
        shares = [f"{name} {use.steps / whole.steps:.0%}" for name, use in self.methods.items() if use.steps]
        if self.off:
            shares.append(f"off {self.off.total() / whole.steps:.0%}")
        line = (
            f"{', '.join(shares) or 'no draft'} of {whole.steps} steps, {whole.gain:.2f} times plain decoding's speed"
        )
        if (lost := whole.time - whole.tokens) < 1.0:
            return line
        steps = "step" if round(lost) == 1 else "steps"
        return f"{line}: drafts lost the time of {lost:.0f} plain {steps}, which auto.balance and auto.share bound"


@attrs.define(eq=False)
class Learner:
    """Charges every step to the account, and learns from it. It reads no clock.

    costs: {sequences: costs}. methods: {name: method} in their order. texts: {number of a sequence: text}.
    steps: that were learned from. unmeasured: steps with drafts since a plain one was measured; interval: after how
    many one is due. undrafted: steps since the last one with drafts.
    asked: methods of the present plan. reason: why it lets nobody draft.
    """

    account: Account = attrs.field(factory=Account)
    report: Report = attrs.field(factory=Report)
    costs: dict[int, Costs] = attrs.field(factory=dict)
    methods: dict[str, Method] = attrs.field(factory=dict)
    texts: dict[int, TextStats] = attrs.field(factory=dict)
    steps: int = 0
    unmeasured: int = 0
    interval: int = TRIAL
    undrafted: int = 0
    asked: tuple[str, ...] = ()
    reason: str = ""

    def costs_of(self, sequences: int) -> Costs:
        """Costs of steps with this number of sequences."""
        if sequences not in self.costs:
            self.costs[sequences] = Costs(sequences)
        return self.costs[sequences]

    def learn(self, records: list[StepRecord], controller: str) -> None:
        """Learn from all steps since the last plan. controller: its name in the run."""
        drafts: dict[tuple[int, str], Drafts] = {}
        if len(records) > 2 * RECENT and records[-1].plain:  # the end of a long rest says enough
            self._rest_over(len(records) - RECENT)
            records = records[-RECENT:]
        for record in records:
            if record.depth is None:  # rows of a prompt: it says nothing about a plain step
                self.undrafted = 0
                continue
            self.steps += 1
            own = record.seconds.get(f"draft.{controller}", 0.0)
            if record.attempts:
                if all(attempt.number in self.texts for attempt in record.attempts):  # others want no control
                    self._learn_drafts(record, own, drafts)
            elif record.rows == record.sequences:
                self._learn_plain(record, own)
        for (number, name), each in drafts.items():
            self.methods[name].learn(each)
            self.texts[number].learn(name, self.methods[name], each)
            self.report.methods[name].lengths.update(attempt.depth for attempt in each.attempts)
        for costs in self.costs.values():
            costs.guess()

    def _rest_over(self, steps: int) -> None:
        """Charge plain steps in which methods took what they usually do."""
        standing = sum(method.standing.value for method in self.methods.values())
        for method in self.methods.values():
            method.stood += steps * method.standing.value
        self.steps += steps
        self._charge(steps, steps * (1.0 + standing), steps)

    def _charge(self, tokens: float, time: float, steps: int = 1) -> None:
        self.account.charge(tokens, time)
        self.report.all.add(tokens, time, steps)
        if self.reason:
            self.report.off[self.reason] += steps

    def _learn_plain(self, record: StepRecord, own: float) -> None:
        taken = dict.fromkeys(self.methods, 0.0)
        for label, seconds in record.seconds.items():
            if (name := label.partition(".")[2]) in taken:
                taken[name] += seconds
        beside, costs = sum(taken.values()) + own, self.costs_of(record.sequences)
        self.undrafted += 1
        if self.undrafted >= SETTLE - 1:  # the first forwards after drafts take longer
            first, forward = not costs.forward, record.seconds["verify"]
            costs.add_plain(forward, record.total_seconds - forward - beside)
            self.unmeasured = 0
            others = [other for other in self.costs.values() if other is not costs and other.forward]
            if first and others:
                costs.borrow(min(others, key=lambda other: abs(other.sequences - costs.sequences)))
        if not costs.plain:
            return
        self._charge(1.0, 1.0 + beside / costs.plain)
        for name, seconds in taken.items():
            method, time = self.methods[name], seconds / costs.plain
            if record.plain:
                method.standing.add(time)
                method.stood += time
            elif name in self.asked:
                method.learn_offer(False, time)

    def _learn_drafts(self, record: StepRecord, own: float, drafts: dict[tuple[int, str], Drafts]) -> None:
        """Learn from a step with drafts, which are added to ``drafts``."""
        attempts, sequences, forward = record.attempts, record.sequences, record.seconds["verify"]
        costs = self.costs_of(sequences)
        self.undrafted = 0
        self.unmeasured += 1
        costs.waiting.setdefault(record.rows, []).append(forward)
        if not costs.plain:
            return
        plain, tokens = costs.plain_seconds(record), record.tokens / sequences
        names = {attempt.method for attempt in attempts}
        depth = sum(attempt.depth for attempt in attempts) / sequences
        time, charged = (record.total_seconds - own) / plain, record.total_seconds / plain
        first = [attempt for attempt in attempts if attempt.method not in self.texts[attempt.number].served]
        if first:  # a method's first draft for a text evaluates what it has missed
            usual = costs.step(record.rows) + sum(self.methods[name].overhead(sequences, depth) for name in names)
            for attempt in first:
                text = self.texts[attempt.number]
                text.served.add(attempt.method)
                self.methods[attempt.method].first.add(text.tokens, max(0.0, time - usual))
            if not all(self.methods[name].gain.count for name in names):  # of a run: it also loads and allocates
                charged -= max(0.0, time - usual)
            time = min(time, usual)
        elif len(names) == 1:
            beside = (record.total_seconds - forward - own) / plain - 1.0 + costs.forward / costs.plain
            self.methods[attempts[0].method].overheads.setdefault(sequences, Line()).add(depth, max(0.0, beside))
        self._charge(tokens, charged)
        for name in self.asked:  # up to the first that drafted
            self.methods[name].learn_offer(name in names, record.seconds.get(f"draft.{name}", 0.0) / plain)
            if name in names:
                break
        each_row = (time - 1.0) * sequences / sum(attempt.drafted for attempt in attempts)
        for attempt in attempts:
            key = attempt.number, attempt.method
            if key not in drafts:
                drafts[key] = Drafts(attempt.method in record.priced)
            drafts[key].attempts.append(attempt)
            drafts[key].time += 1.0 + each_row * attempt.drafted
        for name in names:
            self.report.methods[name].add(tokens / len(names), charged / len(names))
