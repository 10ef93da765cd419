"""What drafts of a method bring: accepted tokens by position, by text, and against the chances that it gives itself."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from spec_control import BIAS_MAX, PRIOR, PRIOR_TESTS, QUICK, SAMPLED, SLOW, TRIAL
from spec_control.costs import Line, Mean
from spec_core import DraftAttempt

LOW, HIGH = 0.02, 0.98


@attrs.define
class Positions:
    """Acceptance by position in the draft, of tokens behind accepted ones; a position without tests is as the last."""

    chances: list[Mean] = attrs.field(factory=list)
    rate: Mean = attrs.field(factory=lambda: Mean(SLOW / 4, PRIOR, PRIOR_TESTS))

    def add(self, depth: int, accepted: int) -> None:
        tested = min(depth, accepted + 1)
        while len(self.chances) < tested:
            self.chances.append(Mean(SLOW, self.rate.value, PRIOR_TESTS))
        for i in range(tested):
            self.chances[i].add(float(i < accepted))
        self.rate.add(accepted / tested, tested)

    def path(self, rate: float, length: int) -> list[float]:
        """Chance that the first 1 to ``length`` tokens are accepted, in a text with this rate."""
        text, survival, path = odds(rate) / odds(self.rate.value), 1.0, []
        for i in range(length):
            chance = self.chances[min(i, len(self.chances) - 1)].value if self.chances else self.rate.value
            both = text * odds(chance)
            survival *= both / (1.0 + both)
            path.append(survival)
        return path


@attrs.define
class Calibration:
    """Chances that a method gives itself, against the share of its tokens that is accepted."""

    predicted: float = PRIOR_TESTS
    accepted: float = PRIOR_TESTS

    def add(self, confidence: Sequence[float], accepted: int) -> None:
        """A chain. Chances behind the first rejected token were not tested."""
        for i, chance in enumerate(confidence[: accepted + 1]):
            self.predicted += chance - SLOW * self.predicted
            self.accepted += (i < accepted) - SLOW * self.accepted

    @property
    def bias(self) -> float:
        """Accepted tokens by predicted ones."""
        return max(1.0 / BIAS_MAX, min(self.accepted / self.predicted, BIAS_MAX))


@attrs.define
class Gain:
    """Tokens and time of the steps of one sequence in which a method drafted; later ones count more.

    weight: of one more step. tokens, time: of a step, on average; the time is in plain steps.
    """

    weight: float
    tokens: float = 1.0
    time: float = 1.0
    count: int = 0

    def add(self, tokens: float, time: float, times: int) -> None:
        """tokens, time: of so many steps, on average."""
        self.count += times
        weight = max(1.0 - (1.0 - self.weight) ** times, times / self.count)
        self.tokens += weight * (tokens - self.tokens)
        self.time += weight * (time - self.time)

    @property
    def net(self) -> float:
        """Plain steps that one draft gains."""
        return self.tokens - self.time


@attrs.define
class Drafts:
    """Drafts of a method for a text in the steps of one plan. time: of their steps, for this text, in plain steps."""

    priced: bool
    attempts: list[DraftAttempt] = attrs.field(factory=list)
    time: float = 0.0

    @property
    def accepted(self) -> int:
        return sum(attempt.accepted or 0 for attempt in self.attempts)

    @property
    def tokens(self) -> int:
        return len(self.attempts) + self.accepted

    @property
    def tested(self) -> int:
        """Tokens behind accepted ones only."""
        tested = (each for each in self.attempts if each.accepted is not None)
        return sum(min(each.depth, each.accepted + 1) for each in tested)


@attrs.define(eq=False)
class Method:
    """What is known of a method in this run.

    gain: of its drafts. chain, tree: of those without and with branches. offers: share of steps in which it drafted
    when it was asked. idle: plain steps that it takes in a step in which it is asked and drafts nothing; standing: in
    one in which it is not asked. overheads: {sequences: plain steps that it takes for a draft, by its length}.
    first: plain steps that the first draft for a text takes beside that, by tokens of the text. branching: tokens by those of the longest path.
    whole: share of drafts that were as long as they might be.
    lost: plain steps that its drafts have lost in all, gains subtracted. texts: for which it drafted.
    tried_at: step of its last trial. stood: standing plain steps since its last draft. priced: it stops by a price.
    """

    name: str
    positions: Positions = attrs.field(factory=Positions)
    calibration: Calibration = attrs.field(factory=Calibration)
    gain: Gain = attrs.field(factory=lambda: Gain(SLOW))
    chain: Gain = attrs.field(factory=lambda: Gain(SLOW))
    tree: Gain = attrs.field(factory=lambda: Gain(SLOW))
    offers: Mean = attrs.field(factory=Mean)
    idle: Mean = attrs.field(factory=Mean)
    standing: Mean = attrs.field(factory=Mean)
    first: Line = attrs.field(factory=Line)
    branching: Mean = attrs.field(factory=lambda: Mean(SLOW, 1.0))
    depth: Mean = attrs.field(factory=Mean)
    whole: Mean = attrs.field(factory=lambda: Mean(QUICK))
    overheads: dict[int, Line] = attrs.field(factory=dict)
    lost: float = 0.0
    asked: int = 0
    texts: int = 0
    tried_at: int = 0
    stood: float = 0.0
    priced: bool = False

    @property
    def is_tried(self) -> bool:
        """Whether it is known what it brings: it has drafted often, or was asked often."""
        return self.gain.count >= TRIAL or self.asked >= 3 * TRIAL

    @property
    def stops(self) -> bool:
        """Whether a price ends its drafts, mostly, so that they need no other limit."""
        return self.priced and self.whole.value < 0.5

    def usual(self, length: int) -> float:
        """Tokens of its drafts, of those that may have ``length``."""
        return min(length, self.depth.value) if self.stops else length

    def overhead(self, sequences: int, length: float) -> float:
        """Plain steps that it takes for drafts of this length."""
        line = self.overheads.get(sequences)
        return line.at(length) if line else max((line.at(length) for line in self.overheads.values()), default=0.0)

    def line(self, sequences: int) -> Line:
        """What it takes for drafts, to learn from."""
        if sequences not in self.overheads:
            self.overheads[sequences] = Line()
        return self.overheads[sequences]

    def offer(self, drafted: bool, idle: float) -> None:
        """It was asked. idle: plain steps that it took."""
        self.asked += 1
        self.offers.add(float(drafted))
        if not drafted:
            self.idle.add(idle)

    def learn(self, drafts: Drafts) -> None:
        tokens, time, count = drafts.tokens, drafts.time, len(drafts.attempts)
        self.priced, self.stood = drafts.priced, 0.0
        self.lost = max(0.0, self.lost + time - tokens)
        self.gain.add(tokens / count, time / count, count)
        depth, whole = sum(each.depth for each in drafts.attempts), 0
        rows = sum(each.drafted for each in drafts.attempts)
        (self.tree if rows > depth else self.chain).add(tokens / count, time / count, count)
        self.depth.add(depth / count, count)
        self.branching.add(rows / depth, count)
        for i, attempt in enumerate(drafts.attempts):
            whole += attempt.depth >= attempt.budget
            if attempt.accepted is not None and (i % SAMPLED == 0 or self.gain.count < TRIAL):
                self.positions.add(attempt.depth, attempt.accepted)
                if attempt.confidence is not None and attempt.drafted == attempt.depth:
                    self.calibration.add(attempt.confidence, attempt.accepted)
        self.whole.add(whole / count, count)


@attrs.define(eq=False)
class Text:
    """What is known of a sequence.

    rates, gains: {method: acceptance of a token, and what its drafts gain}. lost: plain steps since its best moment.
    pause, probe_at: steps between two probes, and the step of the next one.
    """

    number: int
    methods: tuple[str, ...]
    budget: int = 0
    tokens: int = 0
    served: set[str] = attrs.field(factory=set)
    rates: dict[str, Mean] = attrs.field(factory=dict)
    gains: dict[str, Gain] = attrs.field(factory=dict)
    lost: float = 0.0

    def rate(self, method: Method) -> Mean:
        """Begins as that of the method in all texts."""
        return self.rates.get(method.name) or Mean(QUICK / 2, method.positions.rate.value, PRIOR_TESTS)

    def gain(self, method: Method) -> Gain:
        """The same."""
        return self.gains.get(method.name) or Gain(QUICK, method.gain.tokens, method.gain.time, PRIOR_TESTS)

    def learn(self, method: Method, drafts: Drafts) -> None:
        method.texts += method.name not in self.gains
        count = len(drafts.attempts)
        self.gains[method.name] = gain = self.gain(method)
        self.rates[method.name] = rate = self.rate(method)
        gain.add(drafts.tokens / count, drafts.time / count, count)
        self.lost = max(0.0, self.lost + drafts.time - drafts.tokens)
        if tested := drafts.tested:
            rate.add(drafts.accepted / tested, tested)


def odds(chance: float) -> float:
    chance = max(LOW, min(chance, HIGH))
    return chance / (1.0 - chance)
