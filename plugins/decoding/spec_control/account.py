"""How much more time than plain decoding a run may still spend, and what it did with its time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from spec_control import RISK, WAIVE, WAIVE_SHARE


@attrs.define
class Account:
    """A token bucket of time, in plain steps.

    Every token is worth ``1 + share`` plain steps, and time is paid for in plain steps of its moment. The balance never
    exceeds ``balance_max``. Drafts are paid in advance: a plan needs a balance of at least what it may lose.

    excess: the most that one step took beyond its expected time. waived: what was not charged of such steps, which are
    disturbances of the machine, or first drafts, which load and allocate: no more than the largest of them, or
    ``WAIVE_SHARE`` of all tokens.
    """

    share: float = 0.01
    balance_max: float = 20.0
    balance: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    lowest: float = attrs.field(default=attrs.Factory(lambda self: self.balance_max, takes_self=True), init=False)
    excess: float = attrs.field(default=0.0, init=False)
    waived: float = attrs.field(default=0.0, init=False)
    tokens: float = attrs.field(default=0.0, init=False)

    @property
    def risk(self) -> float:
        """Plain steps that one step may lose at most."""
        return max(self.balance / RISK, min(self.balance, 1.0))

    @property
    def plenty(self) -> bool:
        """Whether it is at least half full."""
        return self.balance >= self.balance_max / 2

    def charge(self, tokens: float, time: float) -> None:
        """After a step. tokens: of each sequence, on average. time: in plain steps."""
        self.tokens += tokens
        self.balance = min(self.balance_max, self.balance + (1.0 + self.share) * tokens - time)
        self.lowest = min(self.lowest, self.balance)

    def waive(self, excess: float) -> float:
        """A step took so much longer than expected. Returns how much of it is not charged."""
        if excess < WAIVE:
            return 0.0
        self.excess = max(self.excess, excess)
        waived = max(0.0, min(excess, max(self.excess, WAIVE_SHARE * self.tokens) - self.waived))
        self.waived += waived
        return waived


@attrs.define
class MethodUse:
    """Steps in which a method drafted, their time and tokens, and {tokens of the longest path: drafts}."""

    steps: int = 0
    time: float = 0.0
    tokens: float = 0.0
    probes: int = 0
    lengths: Counter[int] = attrs.field(factory=Counter)

    def add(self, tokens: float, time: float) -> None:
        self.steps += 1
        self.tokens += tokens
        self.time += time


@attrs.define
class Report:
    """All steps that were measured, in plain steps.

    off: {why nobody was allowed to draft: steps}. methods: {name: its use}.
    """

    steps: int = 0
    time: float = 0.0
    tokens: float = 0.0
    off: dict[str, int] = attrs.field(factory=dict)
    methods: dict[str, MethodUse] = attrs.field(factory=dict)

    def add(self, tokens: float, time: float, reason: str, steps: int = 1) -> None:
        """One step or more. reason: why nobody was allowed to draft, empty if somebody was."""
        self.steps += steps
        self.tokens += tokens
        self.time += time
        if reason:
            self.off[reason] = self.off.get(reason, 0) + steps

    def use(self, name: str) -> MethodUse:
        if name not in self.methods:
            self.methods[name] = MethodUse()
        return self.methods[name]

    @property
    def gain(self) -> float | None:
        """Time of plain decoding by the time that was spent."""
        return self.tokens / self.time if self.time else None

    def fields(self) -> dict[str, Any]:
        methods = {name: self._fields_of(use) for name, use in self.methods.items()}
        return {"summary": self.summary(), "steps": self.steps, "gain": self.gain, "off": self.off, "methods": methods}

    def _fields_of(self, use: MethodUse) -> dict[str, Any]:
        return {
            "steps": use.steps,
            "time_share": use.time / self.time if self.time else None,
            "gain": use.tokens / use.time if use.time else None,
            "probes": use.probes,
            "lengths": {str(n): count for n, count in sorted(use.lengths.items())},
        }

    def summary(self) -> str:
        """One line: what was chosen, how fast it was, and what a loss consists of."""
        if self.gain is None:
            return "nothing measured"
        shares = [f"{name} {use.steps / self.steps:.0%}" for name, use in self.methods.items() if use.steps]
        if self.off:
            shares.append(f"off {sum(self.off.values()) / self.steps:.0%}")
        line = f"{', '.join(shares) or 'no draft'} of {self.steps} steps, {self.gain:.2f} times plain decoding's speed"
        if (lost := self.time - self.tokens) < 1.0:
            return line
        steps = "step" if round(lost) == 1 else "steps"
        return f"{line}: drafts lost the time of {lost:.0f} plain {steps}, which auto.balance and auto.share bound"
