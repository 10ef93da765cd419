"""Steps of a plan that holds, as sums: to learn from all at once takes less time than from one after another."""

from __future__ import annotations

import attrs

from spec_control.acceptance import tested
from spec_core import Spent, Tried

SAMPLED = 4
"""Drafts of which one is looked at by position."""


@attrs.define
class Drafts:
    """Those of one method for one sequence.

    tested, accepted: tokens. lengths: {tokens: drafts}. sample: some of the drafts.
    """

    drafts: int = 0
    tested: int = 0
    accepted: int = 0
    lengths: dict[int, int] = attrs.field(factory=dict)
    sample: list[Tried] = attrs.field(factory=list)

    def add(self, tried: Tried) -> None:
        depth, accepted = tried.depth, tried.accepted
        self.drafts += 1
        self.lengths[depth] = self.lengths.get(depth, 0) + 1
        if accepted is not None:
            self.accepted += accepted
            self.tested += tested(depth, accepted)
            if self.drafts % SAMPLED == 0:
                self.sample.append(tried)


@attrs.define
class Gain:
    """Of the steps in which a method drafted. tokens: of each sequence, on average. spent: time in plain steps.

    shares: its parts of these steps, as several methods may have drafted in one.
    """

    steps: int = 0
    tokens: float = 0.0
    spent: float = 0.0
    shares: float = 0.0

    @property
    def many(self) -> float:
        """Methods that drafted in a step, on average."""
        return self.steps / self.shares


@attrs.define
class Sums:
    """drafts: {(request, method): its drafts}. gains: {method: of its steps}.

    steps, plain: how many there were, and without a draft. tokens, spent: as of ``Gain``.
    """

    drafts: dict[tuple[int, str], Drafts] = attrs.field(factory=dict)
    gains: dict[str, Gain] = attrs.field(factory=dict)
    steps: int = 0
    plain: int = 0
    tokens: float = 0.0
    spent: float = 0.0

    def add(self, step: Spent, spent: float) -> None:
        """spent: the step's time in plain steps."""
        tokens = step.tokens / step.sequences
        self.steps += 1
        self.plain += not step.tried
        self.tokens += tokens
        self.spent += spent
        for tried in step.tried:
            self.drafts.setdefault((tried.number, tried.method), Drafts()).add(tried)
        methods = {tried.method for tried in step.tried}
        for method in methods:
            gain = self.gains.setdefault(method, Gain())
            gain.steps += 1
            gain.tokens += tokens
            gain.spent += spent
            gain.shares += 1.0 / len(methods)
