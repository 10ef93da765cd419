"""How much more time than plain decoding a run may still spend, and what became of its steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from spec_control import RISK, RISK_PAYING


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

    def risk(self, is_paying: bool) -> float:
        """Plain steps that one step may lose at most. is_paying: its drafts have gained so far."""
        return max(self.balance / (RISK_PAYING if is_paying else RISK), min(self.balance, 1.0))

    @property
    def is_half_full(self) -> bool:
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
    """All steps that were measured. off: {why no method was allowed to draft: steps}. methods: {name: its use}."""

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
        return f"{line}: trying drafts cost the time of {lost:.0f} plain {steps}; auto.balance and auto.share limit it"
