"""``--control auto``: the method and draft length with the most tokens per time, or plain decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from threading import Lock
from typing import Any

import attrs
from attrs.setters import NO_OP
from attrs.validators import ge, gt
from spec_costs.file import StepCost
from spec_costs.file import read as read_costs

import spec_control as constants
from spec_control.acceptance import Method, TextStats
from spec_control.account import Account, Learner, Use
from spec_control.costs import Costs
from spec_core import Compat, DraftPlan, Limit, Step, StepRecord, hookimpl

MEASURING, REPAYING, LOST = "measuring a plain step", "repaying", "not paying"
"""Why nobody drafts."""
NOTE = "drafts follow measured times, and the text of a seed depends on them here: {}; control=fixed reproduces it"


@attrs.define(eq=False)
class Planner(Learner):
    """Plans steps by what was learned.

    every: max steps with drafts between two measured plain ones. pause, probe_at: steps between two probes, and the
    step of the next one. repaying: the balance was used up.
    """

    every: int = 128
    pause: int = constants.PAUSE
    probe_at: int = 0
    repaying: bool = False

    def begin(self, methods: Iterable[str], costs: Iterable[StepCost] = ()) -> None:
        """A run begins with these methods, and with costs that were measured before, as whole steps."""
        self.methods.update((name, Method()) for name in methods)
        self.report.methods.update((name, Use()) for name in methods)
        seconds = {(step.batch, step.depth, step.rows): step.seconds for step in costs}
        for (batch, depth, rows), whole in seconds.items():
            if rows > 1 and (plain := seconds.get((batch, depth, 1))) is not None:
                self.costs_of(batch).learn(batch * rows, whole / plain)

    def plan(self, texts: dict[int, TextStats], sequences: int, trees: bool) -> DraftPlan:
        """The next plan. texts: of sequences that may draft. sequences: of the step. trees: drafts may branch."""
        drop, costs, account = self._begin_texts(texts), self.costs_of(sequences), self.account
        if not costs.plain or costs.doubtful or self.unmeasured >= self.interval:
            self.interval = constants.TRIAL if costs.surprised else min(self.every, 2 * self.interval)
            return self._rest(MEASURING, constants.SETTLE, drop)
        reserve = min(constants.RESERVE, 0.9 * account.balance_max)
        self.repaying = account.balance < (reserve if self.repaying else reserve / 4)
        if self.repaying:
            return self._rest(REPAYING, (1.5 * reserve - account.balance) / account.share, drop)
        limits = {number: self._choose(costs, text, trees) for number, text in self.texts.items()}
        trial = self._try_method(costs, limits, trees)
        if not any(limits.values()):
            return self._rest(LOST, self.probe_at - self.steps, drop)
        return self._draft(costs, limits, drop, trial)

    def _begin_texts(self, texts: dict[int, TextStats]) -> set[str]:
        """Add what is known of these texts, and forget others. Returns methods that shall not serve a new one."""
        drop, paying = set[str](), set[str]()
        for number, text in texts.items():
            if (known := self.texts.get(number)) is not None:
                text.served, text.rates, text.gains = known.served, known.rates, known.gains
                paying |= {name for name, gain in text.gains.items() if gain.speed > 1.0}
            else:
                drop |= {name for name in text.methods if not self._admits(self.methods[name])}
                if self.account.plenty:  # another text may be easier
                    self.pause, self.probe_at = constants.PAUSE, self.steps
        self.texts = texts
        for text in texts.values():
            text.methods = tuple(name for name in text.methods if name in paying or name not in drop)
        return drop - paying

    def _admits(self, method: Method) -> bool:
        """Whether a method serves a new text: one that takes time while it does not draft must gain, or be tried."""
        if method.standing.value <= self.account.share or not self._was_tried(method) or method.gain.speed > 1.0:
            return True
        loss = constants.STANDING + constants.PROBE_LOSS
        return (self.steps - method.tried_at) * self.account.share >= loss

    def _rest(self, reason: str, steps: float, drop: set[str]) -> DraftPlan:
        """Let nobody draft, and drop methods that take too much time even so."""
        self.reason, self.asked = reason, ()
        whole, share = max(constants.SETTLE, min(constants.PAUSE_MAX, int(steps))), self.account.share
        costly = [
            (name, m.stood + whole * m.standing.value) for name, m in self.methods.items() if m.standing.value > share
        ]
        drop |= {name for name, time in costly if time >= constants.STANDING}
        return DraftPlan({}, steps=whole, drop=frozenset(drop))

    def _draft(
        self, costs: Costs, limits: Mapping[int, Mapping[str, Limit]], drop: set[str], trial: float
    ) -> DraftPlan:
        """Let methods draft, while the balance pays for their steps with all usual drafts rejected."""
        balance, steps = self.account.balance, constants.TRIAL if trial else constants.HOLD
        usual = max(0.01, self._loss(costs, limits, usual=True))
        steps = max(1, min(steps, self.interval - self.unmeasured, int(balance / usual)))
        firsts = [self._first(self.texts[n], name) for n, one in limits.items() for name in one]
        loss = (trial or max(constants.TRIAL_LOSS / 2, balance / 2)) + max(firsts, default=0.0)
        loss = max(0.0, min(loss, balance - self._loss(costs, limits)))
        self.reason, self.asked = "", tuple(n for n in self.methods if any(n in one for one in limits.values()))
        common = next(iter(limits.values()))
        apart = {number: one for number, one in limits.items() if one != common}
        return DraftPlan(common, apart, steps, loss * costs.plain, costs.plain, frozenset(drop))

    def _loss(self, costs: Costs, limits: Mapping[int, Mapping[str, Limit]], usual: bool = False) -> float:
        """Plain steps that a step loses if all drafts are rejected. usual: where a price stops them, as usual."""
        rows, overhead = 0.0, 0.0
        for one in limits.values():
            drafts = [(self.methods[name], limit.length or 0) for name, limit in one.items()]
            lengths = [(m, min(k, m.depth.value) if usual and m.stops else k) for m, k in drafts]
            rows += max((length * method.branching.value for method, length in lengths), default=0.0)
            overhead = max([overhead, *(method.overhead(costs.sequences, length) for method, length in lengths)])
        return costs.step(costs.sequences + round(rows)) + overhead - 1.0

    def _choose(self, costs: Costs, text: TextStats, trees: bool) -> dict[str, Limit]:
        """Limits of the method with the most tokens per time, if more than 1, and of others.

        They may draft where it offers nothing, or before it where their drafts are better.
        """
        limits, values = {}, {}
        for name in text.methods:
            method = self.methods[name]
            limit = self._limit(costs, text, name, trees) if self._was_tried(method) else None
            if limit is not None:
                tokens, time = self._forecast(costs, text, name, limit.length or 0)
                share, idle = method.offers.value, 1.0 - method.offers.value
                value = (share * tokens + idle) / (share * time + idle * (1.0 + method.idle.value))
                if value > 1.0:
                    limits[name], values[name] = limit, (value, tokens / time)
        if not values:
            return {}
        self.pause, self.probe_at = constants.PAUSE, self.steps + constants.PAUSE
        best, names = max(values, key=lambda name: values[name][0]), [*limits]
        after = names[names.index(best) :]
        return {n: limit for n, limit in limits.items() if n in after or values[n][1] >= values[best][0]}

    def _was_tried(self, method: Method) -> bool:
        """Whether it is known what it brings: it has drafted often, or was asked often, or has lost enough."""
        trial = constants.TRIAL
        return method.gain.count >= trial or method.asked >= 3 * trial or method.lost >= constants.TRIAL_LOSS

    def _first(self, text: TextStats, name: str) -> float:
        """Plain steps that its next draft takes because it is its first one for this text."""
        return 0.0 if name in text.served else self.methods[name].first.at(text.tokens)

    def _forecast(self, costs: Costs, text: TextStats, name: str, length: int) -> tuple[float, float]:
        """Tokens and time of a step with its draft. One that stops by a price is judged by what its drafts gained."""
        method, first = self.methods[name], self._first(text, name) / constants.HOLD
        if method.stops:
            gain = text.gain(name, method)
            return gain.tokens, gain.time + first
        path = method.positions.path(text.rate(name, method).value, length)
        return 1.0 + sum(path), self._time(costs, method, length) + first

    def _time(self, costs: Costs, method: Method, length: int) -> float:
        """Time of a step in which a method drafts ``length`` tokens for every sequence."""
        rows = costs.sequences * (1.0 + length * method.branching.value)
        return costs.step(round(rows)) + method.overhead(costs.sequences, length)

    def _limit(self, costs: Costs, text: TextStats, name: str, trees: bool, longest: int = 1 << 30) -> Limit | None:
        """The length with the most tokens per time that the balance allows. longest: of a trial."""
        method, balance = self.methods[name], self.account.balance
        rows = (costs.rows_max - costs.sequences) / (costs.sequences * method.branching.value)
        most = min(text.budget, max(1, int(rows)), longest)
        times = [self._time(costs, method, k) for k in range(most + 1)]
        most = max(k for k, time in enumerate(times) if time - 1.0 <= self.account.risk)
        if not most or self._first(text, name) > balance - (
            constants.RESERVE if method.gain.speed > 1.0 else balance / 2
        ):
            return None
        length, tokens, best = most, 1.0, 0.0
        if not method.stops and most < longest:
            for k, chance in enumerate(method.positions.path(text.rate(name, method).value, most), 1):
                tokens += chance
                if tokens / times[k] > best:
                    best, length = tokens / times[k], k
        last = min(len(times) - 1, max(4, round(method.depth.value)))
        slope = (times[last] - times[1]) / (last - 1) if last > 1 else times[1] - 1.0
        price = slope * max(1.0, text.gain(name, method).speed) / method.bias
        price = max(constants.PRICE_MIN, min(price, constants.PRICE_MAX))
        return Limit(length, price, self._nodes(costs, method, length) if trees else None)

    def _nodes(self, costs: Costs, method: Method, length: int) -> int:
        """Tokens of a tree that cost no more than it may gain, or of a chain where that gained more."""
        tree, chain, batch = method.tree, method.chain, costs.sequences
        if tree.count >= constants.TRIAL and (chain.count < constants.TRIAL or chain.speed > tree.speed):
            return length
        nodes, most = length, costs.step(batch * (1 + length)) + constants.TREE_COST
        while batch * (2 + nodes) <= costs.rows_max and costs.step(batch * (2 + nodes)) <= most:
            nodes += 1
        return nodes

    def _try_method(self, costs: Costs, limits: dict[int, dict[str, Limit]], trees: bool) -> float:
        """Let one text try a little known method, or after a pause the one that was tried longest ago.

        Returns the time that this may lose, 0 where nothing is tried.
        """
        nobody, plenty = not any(limits.values()), self.account.plenty
        if probing := nobody and self.steps >= self.probe_at:
            self.pause = min(constants.PAUSE_MAX, 2 * self.pause)
            self.probe_at = self.steps + self.pause
        tries = [(number, name) for number, text in self.texts.items() for name in text.methods]
        for number, name in sorted(tries, key=lambda pair: self.methods[pair[1]].tried_at if nobody else 0):
            method, text = self.methods[name], self.texts[number]
            is_new, stale = not self._was_tried(method), self.steps - method.tried_at >= constants.PAUSE_MAX
            is_due = plenty and (is_new or (stale and name not in limits[number]))
            if (is_due or probing) and (limit := self._limit(costs, text, name, trees, constants.PROBE)) is not None:
                after = text.methods[text.methods.index(name) + 1 :]
                others = {n: one for n, one in limits[number].items() if n in after}
                limits[number] = {name: attrs.evolve(limit, price=min(limit.price or 0.0, 0.5)), **others}
                method.tried_at = self.steps
                self.report.methods[name].probes += 1
                return constants.TRIAL_LOSS / 2 if is_new else constants.PROBE_LOSS
        return 0.0


@attrs.define(eq=False, on_setattr=NO_OP)
class Auto:
    """Drafts as long as they pay, and never costs more than a stated share of plain decoding."""

    share: float = attrs.field(default=0.01, validator=gt(0.0), metadata={"help": "time to lose, by plain decoding's"})
    balance: float = attrs.field(default=20.0, validator=gt(0.0), metadata={"help": "plain steps to lose beside that"})
    plain_every: int = attrs.field(
        default=128, validator=ge(8), metadata={"help": "max steps until plain ones are timed"}
    )
    costs: str | None = attrs.field(default=None, metadata={"help": "file of `spec bench step --out`, to begin with"})
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
        self.planner, self._records = Planner(Account(self.share, self.balance), every=self.plain_every), []
        self.exact = None if target is None else target.info.exact
        if self.costs is not None and target is not None:
            file = read_costs(Path(self.costs))
            file.check(target)
            self.planner.begin((), file.steps)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts=(), load=self._begin, report=self.report)

    @hookimpl
    def draft(self, step: Step) -> None:
        parts = [part for part in step.parts if part.budget and part.seq.wants(step.plugin)]
        texts = {p.seq.number: TextStats(tuple(filter(p.seq.wants, step.methods)), p.budget, p.start) for p in parts}
        with self._lock:
            self.private, self._name, self._records = step.private, step.plugin, step.records
            if not self.planner.methods:
                self.planner.begin(step.methods)
            self.planner.learn(step.records, step.plugin)
            step.plan(self.planner.plan(texts, len(step.parts), step.trees))

    def report(self) -> dict[str, Any]:
        """What was chosen, what it gained, and the account, in plain steps. It changes no plan."""
        with self._lock:  # another thread may ask, while the run makes steps
            planner = deepcopy(self.planner)
            planner.learn(list(self._records), self._name)
        account = {name: getattr(planner.account, name) for name in ("balance", "lowest", "balance_max", "share")}
        return {**planner.report.fields(), "ledger": account, "note": self.note}

    @property
    def note(self) -> str | None:
        """Why a seed's text depends on measured time; None where it does not."""
        if self.private:
            return NOTE.format("the rule draws with noise of its own")
        return None if self.exact in (None, "", "rows") else NOTE.format("rows are not equal to the bit")
