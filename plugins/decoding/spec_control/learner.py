"""What steps say: costs, acceptance, and the balance of the account."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import attrs

from spec_control import FEW, RECENT, RISK, SETTLE
from spec_control.acceptance import Drafts, Method, TextStats
from spec_control.account import Account, Report
from spec_control.costs import Costs, Usual
from spec_core import DraftAttempt, StepRecord

Drafted = dict[tuple[int, str, int], Drafts]
"""Drafts by text, method and number of sequences."""


@attrs.define(eq=False)
class Learner:
    """Charges every step to the account, and learns from it. It reads no clock."""

    account: Account = attrs.field(factory=Account)
    report: Report = attrs.field(factory=Report)
    costs: dict[int, Costs] = attrs.field(factory=dict)
    """{sequences: costs}."""
    methods: dict[str, Method] = attrs.field(factory=dict)
    """{name: method} in their order."""
    texts: dict[int, TextStats] = attrs.field(factory=dict)
    """{number of a sequence: text}."""
    usual: defaultdict[Hashable, Usual] = attrs.field(factory=lambda: defaultdict(Usual))
    """{what it is: times of parts of steps}."""
    controller: str = ""
    """The controller's name in the run."""
    steps: int = 0
    """Steps that were learned from."""
    undrafted: int = 0
    """Steps since the last one with drafts."""
    asked: tuple[str, ...] = ()
    """Methods of the present plan."""
    reason: str = ""
    """Why it lets no method draft."""

    def costs_of(self, sequences: int) -> Costs:
        """Costs of steps with this number of sequences."""
        if sequences not in self.costs:
            self.costs[sequences] = Costs(sequences)
        return self.costs[sequences]

    def learn(self, records: list[StepRecord], controller: str) -> None:
        """Learn from all steps since the last plan. controller: its name in the run."""
        drafted: Drafted = {}
        self.controller = controller
        if len(records) > 2 * RECENT and records[-1].plain:  # the end of a long rest says enough
            self._end_rest(self.costs_of(records[-1].sequences), len(records) - RECENT)
            records = records[-RECENT:]
        for record in records:
            if record.depth is None:  # rows of a prompt: it says nothing about a plain step
                self.undrafted = 0
                continue
            self.steps += 1
            if min(record.total_seconds, record.seconds.get("verify", 0.0)) <= 0.0:  # the clock did not move
                continue
            if record.attempts:
                self._learn_drafts(record, drafted)
            elif record.rows == record.sequences:
                self._learn_plain(record)
        for (number, name, sequences), drafts in drafted.items():
            method = self.methods[name]
            method.learn(drafts)
            method.tried_at = self.steps
            if drafts.priced:
                method.learn_price(sequences, self._row_cost(method, self.costs_of(sequences)), drafts)
            if (text := self.texts.get(number)) is not None:
                text.learn(name, method, drafts)
            self.report.methods[name].lengths.update(attempt.depth for attempt in drafts.attempts)

    def _row_cost(self, method: Method, costs: Costs) -> float:
        """Tokens that are worth the time of one more token in each draft, by what drafts and other steps bring."""
        n, depth = costs.sequences, max(2.0, method.depth.value)
        rows = [round(n * (1.0 + length * method.branching.value)) for length in (1.0, depth)]
        whole = costs.step(rows[1]) - costs.step(rows[0]) + method.overhead(n, depth) - method.overhead(n, 1.0)
        speed = method.value(method.gain.tokens, self._draft_time(costs, method, method.gain.rows))
        return max(1.0, speed) * whole / (depth - 1.0)

    def _draft_time(self, costs: Costs, method: Method, rows: float) -> float:
        """Time of a step for a text with this number of drafted rows."""
        if costs.sequences in method.row_times:
            return 1.0 + rows * method.row_times[costs.sequences].value
        others = rows * costs.sequences  # as if the others drafted too
        return costs.step(round(costs.sequences + others)) + method.overhead(costs.sequences, rows)

    def _end_rest(self, costs: Costs, steps: int) -> None:
        """Charge plain steps in which methods took what they usually do."""
        standing = sum(method.standing.value for method in self.methods.values())
        for method in self.methods.values():
            method.stood += steps * method.standing.value
        self.steps += steps
        self._charge(costs, steps, steps * (1.0 + standing), steps)

    def _charge(self, costs: Costs, tokens: float, time: float, steps: int = 1) -> None:
        """Charge steps. tokens: of each sequence. time: in plain steps."""
        self.account.charge(tokens, time)
        self.report.all.add(tokens * costs.plain, time * costs.plain, steps)
        if self.reason:
            self.report.off[self.reason] += steps

    def _own_seconds(self, record: StepRecord) -> float:
        """Seconds that the controller itself took in a step."""
        return record.seconds.get(f"draft.{self.controller}", 0.0)

    def _learn_plain(self, record: StepRecord) -> None:
        taken = dict.fromkeys(self.methods, 0.0)
        for label, seconds in record.seconds.items():
            if (name := label.partition(".")[2]) in taken:
                taken[name] += seconds
        spent, costs = sum(taken.values()) + self._own_seconds(record), self.costs_of(record.sequences)
        self.undrafted += 1
        if self.undrafted >= SETTLE - 1:  # the first forwards after drafts take longer
            self._measure(costs, record, spent)
        if not costs.plain:
            return
        self._charge(costs, 1.0, 1.0 + self.usual["plain"].cut(spent / costs.plain))
        for name, seconds in taken.items():
            method, time = self.methods[name], self.usual[name].cut(seconds / costs.plain)
            if record.plain:
                method.standing.add(time)
                method.stood += time
            elif name in self.asked:
                is_late, method.called_at = self.steps - method.called_at >= FEW, self.steps
                method.learn_offers(0.0, min(time, method.idle.value) if is_late and method.idle.count else time)

    def _measure(self, costs: Costs, record: StepRecord, spent: float) -> None:
        """Measure a plain step. spent: seconds of it that methods and the controller took."""
        is_first, forward = not costs.forward, record.seconds["verify"]
        costs.add_plain(forward, record.total_seconds - forward - spent)
        others = [other for other in self.costs.values() if other is not costs and other.forward]
        if is_first and others:
            costs.borrow(min(others, key=lambda other: abs(other.sequences - costs.sequences)))

    def _learn_drafts(self, record: StepRecord, drafted: Drafted) -> None:
        """Learn from a step with drafts, which are added to ``drafted``."""
        costs, self.undrafted = self.costs_of(record.sequences), 0
        if any(attempt.number not in self.texts for attempt in record.attempts):  # a request that wants no control
            return
        costs.unmeasured += 1
        costs.waiting.setdefault(record.rows, []).append(record.seconds["verify"])
        if costs.plain:
            self._learn_time(record, costs, drafted)

    def _learn_time(self, record: StepRecord, costs: Costs, drafted: Drafted) -> None:
        """Charge a step with drafts, and learn what these brought."""
        attempts, sequences, forward = record.attempts, record.sequences, record.seconds["verify"]
        plain, tokens, own = costs.plain_seconds(record), record.tokens / sequences, self._own_seconds(record)
        names = {attempt.method for attempt in attempts}
        depth = sum(attempt.depth for attempt in attempts) / sequences
        host = 1.0 - costs.forward / costs.plain
        besides = (record.total_seconds - forward - own) / plain - host
        usual = sum(self.methods[name].overhead(sequences, depth) for name in names)
        if first := self._first_drafts(attempts):
            once, besides = max(0.0, besides - usual), min(besides, usual)
            for attempt, missed in first:
                method, each = self.methods[attempt.method], once / len(first)
                if method.gain.count:
                    method.first.add(missed, each)
                else:  # it loads too
                    method.first_of_run = min(each, self.account.balance_max / RISK)
        else:
            once, besides = 0.0, self.usual[frozenset(names), sequences].cut(max(0.0, besides))
            if len(names) == 1:
                self.methods[attempts[0].method].overheads[sequences].add(depth, besides)
        time = forward / plain + host + besides
        if first and not all(self.methods[name].gain.count for name in names):  # of a run: it loads and allocates
            time, once = min(time, costs.step(record.rows) + usual), 0.0
        charged = time + once + (self.usual["plan"].cut(own / plain) if own else 0.0)
        self._charge(costs, tokens, charged)
        self._learn_offers(record, plain)
        each_row = (time - 1.0) * sequences / sum(attempt.drafted for attempt in attempts)
        for name in names:
            self.methods[name].row_times[sequences].add(each_row)
        for attempt in attempts:
            key = attempt.number, attempt.method, sequences
            if key not in drafted:
                drafted[key] = Drafts(attempt.method in record.priced)
            drafted[key].attempts.append(attempt)
            drafted[key].time += 1.0 + each_row * attempt.drafted
        for name in names:
            self.report.methods[name].add(tokens * costs.plain / len(names), charged * costs.plain / len(names))

    def _missed_tokens(self, text: TextStats, name: str) -> int:
        """Tokens of a text that a method has not seen: all before its first draft, and the tokens of a rest."""
        if name not in text.served:
            return text.tokens
        missed = self.steps - self.methods[name].called_at
        return missed if missed >= FEW else 0

    def _first_drafts(self, attempts: tuple[DraftAttempt, ...]) -> list[tuple[DraftAttempt, int]]:
        """Drafts of methods that first evaluate what they have missed of their text, with the number of its tokens."""
        first = []
        for attempt in attempts:
            if (text := self.texts.get(attempt.number)) is None:
                continue
            if missed := self._missed_tokens(text, attempt.method):
                first.append((attempt, missed))
            text.served.add(attempt.method)
        return first

    def _learn_offers(self, record: StepRecord, plain: float) -> None:
        """Learn for how many of the sequences without a draft each method had one."""
        undrafted = record.sequences
        for name in self.asked:
            drafts = sum(attempt.method == name for attempt in record.attempts)
            self.methods[name].called_at = self.steps
            self.methods[name].learn_offers(drafts / undrafted, record.seconds.get(f"draft.{name}", 0.0) / plain)
            if (undrafted := undrafted - drafts) <= 0:
                break
