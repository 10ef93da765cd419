"""Steps of a plan that holds, as sums: to learn from all at once takes less time than from one after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import partial

import attrs

from spec_control.acceptance import tested
from spec_core import DraftAttempt, StepRecord

SAMPLED = 4
"""Drafts of which one is looked at by position."""
WARM = 2
"""Plain steps after a draft whose forwards take longer than those of plain decoding: caches hold other data."""


@attrs.define
class Drafts:
    """Those of one method for one sequence.

    tested, accepted: tokens. lengths: {tokens: drafts}. sample: some of the drafts.
    stopped, whole: chains that ended before their limit, and those of them that were accepted whole.
    """

    drafts: int = 0
    tested: int = 0
    accepted: int = 0
    lengths: dict[int, int] = attrs.field(factory=dict)
    sample: list[DraftAttempt] = attrs.field(factory=list)
    stopped: int = 0
    whole: int = 0

    def add(self, tried: DraftAttempt) -> None:
        depth, accepted = tried.depth, tried.accepted
        self.drafts += 1
        self.lengths[depth] = self.lengths.get(depth, 0) + 1
        if accepted is not None:
            self.accepted += accepted
            self.tested += tested(depth, accepted)
            if tried.drafted == depth < tried.budget:
                self.stopped += 1
                self.whole += accepted == depth
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

    def add(self, tokens: float, spent: float, methods: int) -> None:
        self.steps += 1
        self.tokens += tokens
        self.spent += spent
        self.shares += 1.0 / methods

    @property
    def many(self) -> float:
        """Methods that drafted in a step, on average."""
        return self.steps / self.shares


@attrs.define
class Sums:
    """drafts: {(request, method): its drafts}. gains: {method: of its steps}.

    forwards: {rows: seconds of each forward}. beside: {(method, length): seconds beside the forward of each step in
    which it alone drafted, so many tokens for a sequence on average}.
    idle: the same of steps in which nobody drafted.
    steps: tokens of each sequence, on average, and time in plain steps. plain: how many had no draft.
    _apart: how many of these have followed the last draft.
    """

    drafts: dict[tuple[int, str], Drafts] = attrs.field(factory=partial(defaultdict, Drafts))
    gains: dict[str, Gain] = attrs.field(factory=partial(defaultdict, Gain))
    forwards: dict[int, list[float]] = attrs.field(factory=partial(defaultdict, list))
    beside: dict[tuple[str, int], list[float]] = attrs.field(factory=partial(defaultdict, list))
    idle: list[float] = attrs.field(factory=list)
    steps: list[tuple[float, float]] = attrs.field(factory=list)
    plain: int = 0
    _apart: int = 0

    def add(self, step: StepRecord, whole: float, spent: float, usual: bool = True) -> None:
        """whole: seconds, without those of the controller. spent: the same in plain steps.

        usual: it took as long as others like it: it was not disturbed, nor did the controller plan in it.
        """
        tokens, tried = step.tokens / step.sequences, step.attempts
        if not tried:
            self.add_plain(step, whole, spent, usual)
            return
        self.steps.append((tokens, spent))
        self._apart, depth = 0, 0
        for one in tried:
            self.drafts[one.number, one.method].add(one)
            depth += one.depth
        methods: Collection[str] = (one.method,) if len(tried) == 1 else {one.method for one in tried}
        for method in methods:
            self.gains[method].add(tokens, spent, len(methods))
        if usual:
            forward = step.seconds["verify"]
            self.forwards[step.rows].append(forward)
            if len(methods) == 1:
                self.beside[one.method, max(1, round(depth / step.sequences))].append(whole - forward)

    def add_plain(self, step: StepRecord, whole: float, spent: float, usual: bool = True) -> None:
        """The same, where nobody drafted."""
        self.steps.append((step.tokens / step.sequences, spent))
        self.plain += 1
        self._apart += 1
        if usual:
            forward = step.seconds["verify"]
            self.idle.append(whole - forward)
            if self._apart > WARM:
                self.forwards[step.rows].append(forward)

    def drafted(self, method: str, number: int | None) -> int:
        """Drafts of a method, for one request or for all."""
        drafts = self.drafts.items()
        return sum(found.drafts for (one, name), found in drafts if name == method and number in (None, one))
