"""What a controller did, in numbers."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.define
class Used:
    """Of one method. steps: in which it drafted. spent: their time in plain steps. tokens: that they brought.

    lengths: {tokens of the longest path: drafts}. probes: drafts made to see whether they are accepted again.
    """

    steps: int = 0
    spent: float = 0.0
    tokens: float = 0.0
    probes: int = 0
    lengths: dict[int, int] = attrs.field(factory=dict)


@attrs.define
class Book:
    """Of a run: all steps that were measured, in plain steps.

    off: {reason: steps without a draft}. periods: {reason: times that it began}.
    """

    steps: int = 0
    spent: float = 0.0
    tokens: float = 0.0
    off: dict[str, int] = attrs.field(factory=dict)
    periods: dict[str, int] = attrs.field(factory=dict)
    used: dict[str, Used] = attrs.field(factory=dict)
    _reason: str = ""

    def step(self, tokens: float, spent: float, times: int, reason: str) -> None:
        """Steps that were measured. reason: why nobody was allowed to draft in them, empty if somebody was."""
        self.steps += times
        self.tokens += tokens
        self.spent += spent
        if reason:
            self.off[reason] = self.off.get(reason, 0) + times
            if reason != self._reason:
                self.periods[reason] = self.periods.get(reason, 0) + 1
        self._reason = reason

    def of(self, name: str) -> Used:
        found = self.used.get(name)
        if found is None:
            found = self.used[name] = Used()
        return found

    @property
    def gain(self) -> float | None:
        """Time of plain decoding by the time that was spent."""
        return self.tokens / self.spent if self.spent else None

    def report(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "gain": self.gain,
            "off": dict(self.off),
            "off_periods": dict(self.periods),
            "methods": {name: self._method(used) for name, used in self.used.items()},
        }

    def _method(self, used: Used) -> dict[str, Any]:
        return {
            "steps": used.steps,
            "time_share": used.spent / self.spent if self.spent else None,
            "gain": used.tokens / used.spent if used.spent else None,
            "probes": used.probes,
            "lengths": {str(n): times for n, times in sorted(used.lengths.items())},
        }

    def summary(self) -> str:
        """One line: what was chosen, and how fast it was."""
        if self.gain is None:
            return "nothing measured"
        chosen = [f"{name} {used.steps / self.steps:.0%}" for name, used in self.used.items() if used.steps]
        off = f"off {sum(self.off.values()) / self.steps:.0%}" if self.off else ""
        return f"{', '.join([*chosen, *filter(None, [off])])} of {self.steps} steps, {self.speed()}"

    def speed(self) -> str:
        """The gain in words, and what a loss was made of."""
        said = f"{self.gain:.2f} times plain decoding's speed"
        lost = self.spent - self.tokens
        if lost < 1.0:
            return said
        steps = "step" if round(lost) == 1 else "steps"
        return f"{said}: drafts lost the time of {lost:.0f} plain {steps}, which auto.balance and auto.share bound"
