"""What drafts of a method bring: accepted tokens by position, by text, and against the chances that it gives itself."""

from __future__ import annotations

import attrs

from spec_control import BIAS_MAX, PRICE_MIN, PRIOR, PRIOR_TESTS, QUICK, SLOW
from spec_control.costs import Line, Mean
from spec_core import DraftAttempt


@attrs.define
class Positions:
    """Acceptance by position in the draft, of tokens behind accepted ones, and of all."""

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
        for i in range(length):  # a position that was not tested is as the last one that was
            each = text * odds(self.chances[min(i, len(self.chances) - 1)].value if self.chances else self.rate.value)
            survival *= each / (1.0 + each)
            path.append(survival)
        return path


@attrs.define
class Gain:
    """Tokens and time, in plain steps, of a step in which a method drafted. weight: of one more."""

    weight: float = SLOW
    tokens: float = 1.0
    time: float = 1.0
    count: int = 0

    def add(self, drafts: Drafts) -> None:
        times = len(drafts.attempts)
        self.count += times
        weight = max(1.0 - (1.0 - self.weight) ** times, times / self.count)
        self.tokens += weight * (drafts.tokens / times - self.tokens)
        self.time += weight * (drafts.time / times - self.time)

    @property
    def speed(self) -> float:
        """Tokens by plain step."""
        return self.tokens / self.time


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
        return sum(min(one.depth, one.accepted + 1) for one in self.attempts if one.accepted is not None)


@attrs.define(eq=False)
class Method:
    """What is known of a method in this run.

    chances, shares: chances that it gives its tokens, and the share of these that is accepted.
    gain: of its drafts; chain, tree: of drafts without and with branches. asked: how often it was called.
    offers: share of these in which it drafted. idle: plain steps that it takes where it does not; standing: in a step
    in which it is not asked; stood: in all such steps since its last draft.
    overheads: {sequences: plain steps that it takes for a draft, by its length}. first: plain steps that its first
    draft for a text takes beside that, by tokens of the text. depth: tokens of the longest path; branching: of all
    paths, over depth. whole: share of drafts that were as long as they might be. priced: it asks for a price.
    lost: plain steps that its drafts lost. tried_at: step of its last trial.
    """

    positions: Positions = attrs.field(factory=Positions)
    chances: Mean = attrs.field(factory=lambda: Mean(SLOW, 1.0, PRIOR_TESTS))
    shares: Mean = attrs.field(factory=lambda: Mean(SLOW, 1.0, PRIOR_TESTS))
    gain: Gain = attrs.field(factory=Gain)
    chain: Gain = attrs.field(factory=Gain)
    tree: Gain = attrs.field(factory=Gain)
    asked: int = 0
    offers: Mean = attrs.field(factory=Mean)
    idle: Mean = attrs.field(factory=Mean)
    standing: Mean = attrs.field(factory=Mean)
    stood: float = 0.0
    overheads: dict[int, Line] = attrs.field(factory=dict)
    first: Line = attrs.field(factory=Line)
    depth: Mean = attrs.field(factory=Mean)
    branching: Mean = attrs.field(factory=lambda: Mean(SLOW, 1.0))
    whole: Mean = attrs.field(factory=lambda: Mean(QUICK))
    priced: bool = False
    lost: float = 0.0
    tried_at: int = 0

    @property
    def bias(self) -> float:
        """The share of its tokens that is accepted by the chances that it gives them."""
        return max(1.0 / BIAS_MAX, min(self.shares.value / self.chances.value, BIAS_MAX))

    @property
    def stops(self) -> bool:
        """Whether a price ends its drafts, mostly, so that they need no other limit."""
        return self.priced and self.whole.value < 0.5

    def overhead(self, sequences: int, length: float) -> float:
        """Plain steps that it takes for drafts of this length."""
        lines = [self.overheads[sequences]] if sequences in self.overheads else self.overheads.values()
        return max((line.at(length) for line in lines), default=0.0)

    def learn_offer(self, drafted: bool, idle: float) -> None:
        """It was asked. idle: plain steps that it took."""
        self.asked += 1
        self.offers.add(float(drafted))
        if not drafted:
            self.idle.add(idle)

    def learn(self, drafts: Drafts) -> None:
        count = len(drafts.attempts)
        depth, rows = sum(one.depth for one in drafts.attempts), sum(one.drafted for one in drafts.attempts)
        self.priced, self.stood = drafts.priced, 0.0
        self.lost = max(0.0, self.lost + drafts.time - drafts.tokens)
        self.gain.add(drafts)
        (self.tree if rows > depth else self.chain).add(drafts)
        self.depth.add(depth / count, count)
        self.branching.add(rows / depth, count)
        self.whole.add(sum(one.depth >= one.budget for one in drafts.attempts) / count, count)
        for one in drafts.attempts:
            if one.accepted is not None:
                self.positions.add(one.depth, one.accepted)
            for chance, accepted in one.judged or ():
                self.chances.add(chance)
                self.shares.add(float(accepted))


@attrs.define(eq=False)
class TextStats:
    """What is known of a sequence.

    methods: allowed by its request. budget: its longest draft. tokens: its length. served: methods that have drafted
    for it.
    rates, gains: {method: acceptance of a token, and what its drafts bring}; they begin as in all texts.
    """

    methods: tuple[str, ...] = ()
    budget: int = 0
    tokens: int = 0
    served: set[str] = attrs.field(factory=set)
    rates: dict[str, Mean] = attrs.field(factory=dict)
    gains: dict[str, Gain] = attrs.field(factory=dict)

    def rate(self, name: str, method: Method) -> Mean:
        return self.rates.get(name) or Mean(QUICK / 2, method.positions.rate.value, PRIOR_TESTS)

    def gain(self, name: str, method: Method) -> Gain:
        return self.gains.get(name) or Gain(QUICK, method.gain.tokens, method.gain.time, PRIOR_TESTS)

    def learn(self, name: str, method: Method, drafts: Drafts) -> None:
        self.gains[name], self.rates[name] = self.gain(name, method), self.rate(name, method)
        self.gains[name].add(drafts)
        if drafts.tested:
            self.rates[name].add(drafts.accepted / drafts.tested, drafts.tested)


def odds(chance: float) -> float:
    chance = max(PRICE_MIN, min(chance, 1.0 - PRICE_MIN))
    return chance / (1.0 - chance)
