"""What drafts of a method bring: accepted tokens by position and by text, their time, and the price of one more."""

from __future__ import annotations

import math
from collections import defaultdict

import attrs

from spec_control import CHANCE_MIN, PRICE_MAX, PRICE_MIN, PRIOR, PRIOR_OFFERS, PRIOR_TESTS, QUICK, SLOW, USUAL
from spec_control.costs import Line, Mean
from spec_core import DraftAttempt


@attrs.define
class Positions:
    """Acceptance by position in the draft, of tokens after accepted ones, and of all."""

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
    """What a method's drafts bring: tokens of a step with one, drafted rows, and time in plain steps.

    weight: of one more.
    """

    weight: float = SLOW
    tokens: float = 1.0
    rows: float = 0.0
    time: float = 1.0
    count: int = 0

    def add(self, drafts: Drafts) -> None:
        times = len(drafts.attempts)
        self.count += times
        weight = max(1.0 - (1.0 - self.weight) ** times, times / self.count)
        self.tokens += weight * (drafts.tokens / times - self.tokens)
        self.rows += weight * (drafts.rows / times - self.rows)
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
    def rows(self) -> int:
        return sum(attempt.drafted for attempt in self.attempts)

    @property
    def tested(self) -> int:
        """Tokens after accepted ones only."""
        return sum(min(one.depth, one.accepted + 1) for one in self.attempts if one.accepted is not None)


@attrs.define(eq=False)
class Method:
    """What is known of a method in this run."""

    positions: Positions = attrs.field(factory=Positions)
    prices: dict[int, float] = attrs.field(factory=dict)
    """{sequences: price}, see ``price``."""
    row_times: defaultdict[int, Mean] = attrs.field(factory=lambda: defaultdict(Mean))
    """{sequences: plain steps that a drafted token takes}."""
    gain: Gain = attrs.field(factory=Gain)
    """Gain of its drafts."""
    chain: Gain = attrs.field(factory=Gain)
    """Gain of drafts without branches."""
    tree: Gain = attrs.field(factory=Gain)
    """Gain of drafts with branches."""
    offers: Mean = attrs.field(factory=lambda: Mean(SLOW, PRIOR_OFFERS, PRIOR_TESTS))
    """Share of the steps in which it was asked and drafted."""
    idle: Mean = attrs.field(factory=Mean)
    """Plain steps that it takes where it does not draft."""
    standing: Mean = attrs.field(factory=Mean)
    """Plain steps that it takes in a step in which it is not asked."""
    stood: float = 0.0
    """Plain steps that it took in all such steps since its last draft."""
    overheads: defaultdict[int, Line] = attrs.field(factory=lambda: defaultdict(Line))
    """{sequences: plain steps that it takes for a draft, by its length}."""
    first: Line = attrs.field(factory=Line)
    """Plain steps that its first draft for a text takes in addition, by tokens of the text."""
    first_of_run: float = 0.0
    """Plain steps that its first draft of the run takes in addition."""
    depth: Mean = attrs.field(factory=Mean)
    """Tokens of the longest path."""
    branching: Mean = attrs.field(factory=lambda: Mean(SLOW, 1.0))
    """Tokens of all paths, over ``depth``."""
    priced: bool = False
    """Whether it asks for a price, so that its drafts need no other limit."""
    tried_at: int = 0
    """Step of its last draft."""
    called_at: int = 0
    """Step of the last draft for which it was asked."""

    def price(self, sequences: int) -> float:
        """The chance of a path below which it drafts no further: that of the nearest number of sequences."""
        nearest = min(self.prices, key=lambda n: abs(n - sequences), default=0)
        return self.prices.get(nearest, USUAL)

    def learn_price(self, sequences: int, cost: float, drafts: Drafts) -> None:
        """Move the price until the last token of a draft is accepted as often as it must be to pay.

        cost: tokens that the time of one more token of a draft is worth.
        """
        price = self.price(sequences)
        for attempt in drafts.attempts:
            if attempt.accepted is not None:
                price *= math.exp(QUICK * (cost - float(attempt.accepted == attempt.depth)))
        self.prices[sequences] = max(PRICE_MIN, min(price, PRICE_MAX))

    def overhead(self, sequences: int, length: float) -> float:
        """Plain steps that it takes for drafts of this length."""
        if sequences in self.overheads:
            return self.overheads[sequences].at(length)
        return max((line.at(length) for line in self.overheads.values()), default=0.0)

    def value(self, tokens: float, time: float) -> float:
        """Tokens per plain step where it is asked in every step. tokens, time: of a step with its draft."""
        offers, idle = self.offers.value, 1.0 - self.offers.value
        return (offers * tokens + idle) / (offers * time + idle * (1.0 + self.idle.value))

    def first_time(self, tokens: int) -> float:
        """Plain steps that its first draft for a text of this length takes in addition."""
        return self.first.at(tokens) if self.first.is_known else self.first_of_run

    def learn_offers(self, share: float, idle: float) -> None:
        """It was asked. share: of sequences for which it drafted. idle: plain steps that it took if there were none."""
        self.offers.add(share)
        if not share:
            self.idle.add(idle)

    def learn(self, drafts: Drafts) -> None:
        count, rows = len(drafts.attempts), drafts.rows
        depth = sum(one.depth for one in drafts.attempts)
        self.priced, self.stood = drafts.priced, 0.0
        self.gain.add(drafts)
        (self.tree if rows > depth else self.chain).add(drafts)
        self.depth.add(depth / count, count)
        self.branching.add(rows / depth, count)
        for one in drafts.attempts:
            if one.accepted is not None:
                self.positions.add(one.depth, one.accepted)


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
        return self.gains.get(name) or Gain(QUICK, method.gain.tokens, method.gain.rows, method.gain.time, PRIOR_TESTS)

    def learn(self, name: str, method: Method, drafts: Drafts) -> None:
        self.gains[name], self.rates[name] = self.gain(name, method), self.rate(name, method)
        self.gains[name].add(drafts)
        if drafts.tested:
            self.rates[name].add(drafts.accepted / drafts.tested, drafts.tested)


def odds(chance: float) -> float:
    chance = max(CHANCE_MIN, min(chance, 1.0 - CHANCE_MIN))
    return chance / (1.0 - chance)
