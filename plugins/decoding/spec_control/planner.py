"""The next plan: the methods and draft lengths with the most tokens per time, as far as the account pays for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from spec_costs.file import StepCost

import spec_control as constants
from spec_control.acceptance import Method, TextStats
from spec_control.account import Use
from spec_control.costs import Costs
from spec_control.learner import Learner
from spec_core import DraftPlan, Limit

MEASURING, REPAYING, LOST = "measuring a plain step", "repaying", "not paying"
"""Why no method drafts."""
Limits = dict[str, Limit]
"""Limits of the methods that may draft for a text."""


@attrs.define(eq=False)
class Planner(Learner):
    """Plans steps by what was learned.

    every: max steps with drafts between two measured plain ones. pause, probe_at: steps between two tests of methods
    that do not pay, and the step of the next one.
    """

    every: int = 128
    pause: int = constants.PAUSE
    probe_at: int = 0

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
        drop, costs, balance = self._begin_texts(texts), self.costs_of(sequences), self.account.balance
        if not costs.plain or costs.unmeasured >= costs.interval:
            if costs.unmeasured >= costs.interval:
                costs.interval = min(self.every, 2 * costs.interval)
            is_warm = any(known.plain for known in self.costs.values())
            return self._rest(MEASURING, constants.SETTLE - is_warm, drop)
        reserve = min(constants.RESERVE, 0.9 * self.account.balance_max)
        if balance < reserve:
            return self._rest(REPAYING, (1.5 * reserve - balance) / self.account.share, drop)
        limits = {number: self._choose_methods(costs, text, trees) for number, text in self.texts.items()}
        is_probe = self._add_probe(costs, limits, trees)
        self._limit_first_drafts(limits)
        if not any(limits.values()):
            return self._rest(LOST, self.probe_at - self.steps, drop)
        return self._draft(costs, limits, drop, is_probe)

    def _begin_texts(self, texts: dict[int, TextStats]) -> set[str]:
        """Add what is known of these texts, and forget others. Returns methods that shall not serve a new one."""
        drop, paying = set[str](), set[str]()
        for number, text in texts.items():
            if (known := self.texts.get(number)) is not None:
                text.served, text.rates, text.gains = known.served, known.rates, known.gains
                paying |= {name for name, gain in text.gains.items() if gain.speed > 1.0}
            else:
                drop |= {name for name in text.methods if not self._admits(self.methods[name])}
                if self.account.is_half_full:  # another text may be easier
                    self.pause, self.probe_at = constants.PAUSE, self.steps
        self.texts = texts
        for text in texts.values():
            text.methods = tuple(name for name in text.methods if name in paying or name not in drop)
        return drop - paying

    def _admits(self, method: Method) -> bool:
        """Whether a method serves a new text: one that takes time while it does not draft must gain, or be tested."""
        if method.standing.value <= self.account.share or not method.gain.count or method.gain.speed > 1.0:
            return True
        loss = constants.STANDING + constants.PROBE_LOSS
        return (self.steps - method.tried_at) * self.account.share >= loss

    def _rest(self, reason: str, steps: float, drop: set[str]) -> DraftPlan:
        """Let no method draft, and drop methods that take too much time even so."""
        self.reason, self.asked = reason, ()
        whole, share = max(constants.SETTLE - 1, min(constants.PAUSE_MAX, int(steps))), self.account.share
        costly = [
            (name, m.stood + whole * m.standing.value) for name, m in self.methods.items() if m.standing.value > share
        ]
        drop |= {name for name, time in costly if time >= constants.STANDING}
        return DraftPlan({}, steps=whole, drop=frozenset(drop))

    def _draft(
        self, costs: Costs, limits: Mapping[int, Mapping[str, Limit]], drop: set[str], is_probe: bool
    ) -> DraftPlan:
        """Let methods draft, until the plan has lost a part of the balance."""
        balance, methods = self.account.balance, {self.methods[name] for one in limits.values() for name in one}
        drafts = min(method.gain.count for method in methods)
        is_known = drafts >= constants.FEW
        steps = constants.HOLD if is_known and not is_probe else constants.FEW if drafts else constants.FEW // 2
        worst = max(0.01, self._loss(costs, limits))
        steps = min(steps, costs.interval - costs.unmeasured, max(constants.FEW, int(2 * balance / worst)))
        loss = constants.PROBE_LOSS if is_probe else balance / constants.RISK
        loss += sum(self._first_time(self.texts[number], name) for number, one in limits.items() for name in one)
        loss = max(0.0, min(loss, balance - worst))
        self.reason, self.asked = "", tuple(n for n in self.methods if any(n in one for one in limits.values()))
        common = next(iter(limits.values()))
        apart = {number: one for number, one in limits.items() if one != common}
        return DraftPlan(common, apart, max(1, steps), loss * costs.plain, costs.plain, frozenset(drop))

    def _loss(self, costs: Costs, limits: Mapping[int, Mapping[str, Limit]]) -> float:
        """Plain steps that a step loses if all drafts are rejected."""
        rows, overhead = 0.0, 0.0
        for one in limits.values():
            drafts = [(self.methods[name], limit.length or 0) for name, limit in one.items()]
            rows += max((length * method.branching.value for method, length in drafts), default=0.0)
            overhead = max([overhead, *(method.overhead(costs.sequences, length) for method, length in drafts)])
        return costs.step(costs.sequences + round(rows)) + overhead - 1.0

    def _limit_first_drafts(self, limits: dict[int, Limits]) -> None:
        """Remove a method's first drafts for texts that the balance does not pay for."""
        left = self.account.balance - constants.RESERVE
        for number, one in limits.items():
            for name in [*one]:
                if (time := self._first_time(self.texts[number], name)) > max(0.0, left):
                    del one[name]
                else:
                    left -= time

    def _choose_methods(self, costs: Costs, text: TextStats, trees: bool) -> Limits:
        """Limits of the method with the most tokens per time, if more than 1, and of others that pay.

        They may draft where it offers nothing, or before it where their drafts are better.
        """
        limits: Limits = {}
        values: dict[str, tuple[float, float]] = {}
        for name in text.methods:
            if (limit := self._limit(costs, text, name, trees)) is None:
                continue
            tokens, time = self._forecast(costs, text, name, limit.length or 0)
            if (value := self.methods[name].value(tokens, time)) > 1.0:
                limits[name], values[name] = limit, (value, tokens / time)
        if not values:
            return {}
        self.pause, self.probe_at = constants.PAUSE, self.steps + constants.PAUSE
        best, names = max(values, key=lambda name: values[name][0]), [*limits]
        after = names[names.index(best) :]
        return {n: limit for n, limit in limits.items() if n in after or values[n][1] >= values[best][0]}

    def _first_time(self, text: TextStats, name: str) -> float:
        """Plain steps that its next draft takes because of tokens of this text that it has missed."""
        missed = self._missed_tokens(text, name)
        return self.methods[name].first_time(missed) if missed else 0.0

    def _forecast(self, costs: Costs, text: TextStats, name: str, length: int) -> tuple[float, float]:
        """Tokens and time of a step with its draft. One that stops by a price is judged by what its drafts gained."""
        method, first = self.methods[name], self._first_time(text, name) / constants.HOLD
        if method.priced and method.gain.count >= constants.FEW:
            gain = text.gain(name, method)
            return gain.tokens, self._draft_time(costs, method, gain.rows) + first
        path = method.positions.path(text.rate(name, method).value, length)
        return 1.0 + sum(path), self._time(costs, method, length) + first

    def _time(self, costs: Costs, method: Method, length: int) -> float:
        """Time of a step in which a method drafts ``length`` tokens for every sequence."""
        rows = costs.sequences * (1.0 + length * method.branching.value)
        return costs.step(round(rows)) + method.overhead(costs.sequences, length)

    def _limit(self, costs: Costs, text: TextStats, name: str, trees: bool, longest: int | None = None) -> Limit | None:
        """The length with the most tokens per time that the balance allows; None if no length is allowed.

        longest: of a test.
        """
        method, balance = self.methods[name], self.account.balance
        most = self._longest_affordable(costs, method, text.budget if longest is None else min(text.budget, longest))
        first_max = balance - constants.RESERVE if method.gain.speed > 1.0 else balance / 2
        if not most or self._first_time(text, name) > max(0.0, first_max):
            return None
        is_chosen = not method.priced and longest is None
        length = self._best_length(costs, method, text.rate(name, method).value, most) if is_chosen else most
        nodes = self._nodes(costs, method, length) if trees else None
        return Limit(length, method.price(costs.sequences), nodes)

    def _longest_affordable(self, costs: Costs, method: Method, most: int) -> int:
        """Length of the longest draft that may be tried, and whose step the balance pays for if it is rejected."""
        rows = (costs.rows_max - costs.sequences) / (costs.sequences * method.branching.value)
        most = min(most, max(1, int(rows)))
        risk = self.account.risk(method.gain.count >= constants.FEW and method.gain.speed > 1.0)
        while most and self._time(costs, method, most) - 1.0 > risk:
            most -= 1
        return most

    def _best_length(self, costs: Costs, method: Method, rate: float, most: int) -> int:
        """The length with the most tokens per time, for a text with this rate."""
        length, tokens, best = most, 1.0, 0.0
        for k, chance in enumerate(method.positions.path(rate, most), 1):
            tokens += chance
            if (speed := tokens / self._time(costs, method, k)) > best:
                best, length = speed, k
        return length

    def _nodes(self, costs: Costs, method: Method, length: int) -> int:
        """Tokens of a tree that cost no more than it may gain, or of a chain where that gained more."""
        tree, chain, batch = method.tree, method.chain, costs.sequences
        if tree.count >= constants.FEW and (chain.count < constants.FEW or chain.speed > tree.speed):
            return length
        nodes, most = length, costs.step(batch * (1 + length)) + constants.TREE_COST
        while batch * (2 + nodes) <= costs.rows_max and costs.step(batch * (2 + nodes)) <= most:
            nodes += 1
        return nodes

    def _add_probe(self, costs: Costs, limits: dict[int, Limits], trees: bool) -> bool:
        """Test, after a pause, the method that was tried longest ago; returns whether it is tested.

        Where no method pays, pauses become longer; where some do, another one is tested after the longest pause.
        """
        allowed = {name for text in self.texts.values() for name in text.methods}
        names = sorted(allowed, key=lambda name: self.methods[name].tried_at)
        if any(limits.values()):
            oldest = self.steps - constants.PAUSE_MAX if self.account.is_half_full else -1
            used = {name for one in limits.values() for name in one}
            names = [name for name in names if name not in used and self.methods[name].tried_at <= oldest]
        elif self.steps < self.probe_at:
            return False
        else:
            self.pause = min(constants.PAUSE_MAX, 2 * self.pause)
            self.probe_at = self.steps + self.pause
        return any(self._probe(costs, name, limits, trees) for name in names)

    def _probe(self, costs: Costs, name: str, limits: dict[int, Limits], trees: bool) -> bool:
        """Let a method draft for all texts, before the methods after it; returns whether it may for any.

        For all, since rows cost less together.
        """
        for number, text in self.texts.items():
            if name not in text.methods:
                continue
            longest = text.budget if self.methods[name].priced else constants.PROBE
            if (limit := self._limit(costs, text, name, trees, longest)) is not None:
                after = text.methods[text.methods.index(name) + 1 :]
                others = {n: one for n, one in limits[number].items() if n in after}
                limits[number] = {name: limit, **others}
        if not any(name in one for one in limits.values()):
            return False
        self.methods[name].tried_at = self.steps
        self.report.methods[name].probes += 1
        return True
